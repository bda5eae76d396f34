"""Programs that are not the agent they should be: the run fails with a reason, whatever they do (R3, R5)."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks_app.agent import claude
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.connection import Connection
from tasks_app.agent.leftover_processes import Claim, marked_processes
from tasks_app.agent.port import Ending, Stop
from tasks_app.core.errors import TemporaryFault
from tasks_app.sandbox import Sandbox
from tests.agents import Bench

#: Answers the SDK's greeting, as the real one does, says what it is told to, and ends as it is told to.
SPEAKS = """\
import json, sys, time
hello = json.loads(sys.stdin.readline())
answer = {{"subtype": "success", "request_id": hello["request_id"], "response": {{}}}}
print(json.dumps({{"type": "control_response", "response": answer}}), flush=True)
sys.stdin.readline()
sys.stdout.write({said!r})
sys.stdout.flush()
{end}
"""
ASSISTANT = {
    "type": "assistant",
    "session_id": "s",
    "parent_tool_use_id": None,
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Ünfinished ☃"}],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
}


def bench(base: Path, program: str | None) -> Bench:
    cli = base / "agent-program"
    if program is not None:
        cli.write_text(program)
        cli.chmod(0o755)
    return Bench(ClaudeAgent(Sandbox(None), lambda order: nullcontext(Connection()), cli=cli), base)


def speaking(base: Path, said: str, end: str = "sys.exit(1)") -> Bench:
    (base / "speaker.py").write_text(SPEAKS.format(said=said, end=end))
    return bench(base, f"#!/bin/sh\nexec {sys.executable} {base / 'speaker.py'}\n")


def test_a_missing_program_fails_the_run(tmp_path: Path) -> None:
    result = bench(tmp_path, None).start("no-questions")
    assert result.ending is Ending.FAILED
    assert "there is no agent program at" in result.error
    assert "agent-program" in result.error


def test_a_program_that_cannot_be_executed_fails_the_run(tmp_path: Path) -> None:
    made = bench(tmp_path, "#!/no/such/interpreter\n")
    result = made.start("no-questions")
    assert result.ending is Ending.FAILED
    assert result.error


@pytest.mark.parametrize(
    "program",
    [
        "#!/bin/sh\necho 'I am not well' >&2\nexit 3\n",
        "#!/bin/sh\nexit 0\n",
        '#!/bin/sh\nprintf \'{"type": "assis\'\nexit 1\n',
        "#!/bin/sh\necho 'hello, this is not JSON'\nexit 1\n",
        "#!/bin/sh\necho '[1, 2]'\nexit 1\n",
    ],
)
def test_a_program_that_exits_at_once_fails_the_run(tmp_path: Path, program: str) -> None:
    made = bench(tmp_path, program)
    result = made.start("no-questions")
    assert result.ending is Ending.FAILED
    assert result.error
    assert marked_processes(made.workspace) == []


def test_a_program_that_is_killed_at_once_was_interrupted(tmp_path: Path) -> None:
    made = bench(tmp_path, "#!/bin/sh\nkill -9 $$\n")
    result = made.start("no-questions")
    assert result.ending is Ending.KILLED
    assert "SIGKILL" in result.error
    assert marked_processes(made.workspace) == []


@pytest.mark.parametrize("program", ["#!/bin/sh\nread line; exit 3\n", "#!/bin/sh\nread line; exit 0\n"])
def test_the_result_says_when_the_program_had_ended(tmp_path: Path, program: str) -> None:
    """Storing the result takes a while, which is not the run's."""
    before = datetime.now(UTC)
    result = bench(tmp_path, program).start("no-questions")
    assert result.exited_at is not None
    assert before <= result.exited_at <= datetime.now(UTC)
    (tmp_path / "none").mkdir()
    assert bench(tmp_path / "none", None).start("no-questions").exited_at is None


def test_what_it_complained_of_is_in_the_reason(tmp_path: Path) -> None:
    result = bench(tmp_path, "#!/bin/sh\necho 'I am not well' >&2\nexit 3\n").start("no-questions")
    assert "I am not well" in result.error


def test_half_a_line_and_death_keep_what_was_said_before(tmp_path: Path) -> None:
    """P11: and its tokens."""
    whole = json.dumps(ASSISTANT, ensure_ascii=False) + "\n"
    made = speaking(tmp_path, whole + whole[:60])
    result = made.start("no-questions")
    assert result.ending is Ending.FAILED
    assert result.error
    assert result.text == "Ünfinished ☃"
    assert (result.usage.input_tokens, result.usage.output_tokens) == (7, 3)


def test_an_end_without_a_result_is_a_failure(tmp_path: Path) -> None:
    """A turn that just stops is not a turn that ended."""
    result = speaking(tmp_path, json.dumps(ASSISTANT) + "\n", end="sys.exit(0)").start("no-questions")
    assert result.ending is Ending.FAILED
    assert "without a result" in result.error


def test_a_question_and_death_is_a_question(tmp_path: Path) -> None:
    """H3: no question is lost, whatever the agent does next."""
    ask = {"questions": [{"question": "Still there?", "header": "Q", "options": [], "multiSelect": False}]}
    block = {"type": "tool_use", "id": "toolu_1", "name": "AskUserQuestion", "input": ask}
    message = {**ASSISTANT, "message": {**ASSISTANT["message"], "content": [block]}}  # type: ignore[dict-item]
    result = speaking(tmp_path, json.dumps(message) + "\n").start("no-questions")
    assert result.ending is Ending.ASKED
    assert [item.question for ask in result.asks for item in ask.items] == ["Still there?"]
    assert result.error, "that it died is not kept silent"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "assistant", "message": "no object"},
        {"type": "rate_limit_event", "rate_limit_info": "soon"},
        {"type": "result", "usage": {"input_tokens": "many"}, "total_cost_usd": "free"},
        {"no": "type"},
    ],
)
def test_a_message_of_an_odd_shape_is_kept(tmp_path: Path, odd: dict[str, object]) -> None:
    made = speaking(tmp_path, json.dumps(odd) + "\n" + json.dumps(ASSISTANT) + "\n")
    result = made.start("no-questions")
    assert result.ending is Ending.FAILED
    assert odd in [event.raw for event in made.recorder.events]


def test_characters_split_across_reads_stay_whole(tmp_path: Path) -> None:
    """A fault of the reference tool."""
    text = "ä☃🐈" * 40_000
    body = {**ASSISTANT["message"], "content": [{"type": "text", "text": text}]}  # type: ignore[dict-item]
    line = json.dumps({**ASSISTANT, "message": body}, ensure_ascii=False)
    result = speaking(tmp_path, line + "\n").start("no-questions")
    assert result.text == text


@pytest.mark.parametrize(
    "program", ["#!/bin/sh\nsleep 1000\n", "#!/bin/sh\nsleep 1000 & trap '' TERM; wait\n"]
)
def test_a_program_that_hangs_can_be_stopped(tmp_path: Path, program: str) -> None:
    made = bench(tmp_path, program)

    def stop() -> None:
        raise Stop("too long")

    made.recorder.looked = stop
    with pytest.raises(Stop) as stopped:
        made.start("no-questions")
    assert stopped.value.partial is not None
    assert marked_processes(made.workspace) == []


def test_what_cannot_be_ended_afterwards_does_not_hide_how_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that was asked would be lost with the result; the next run refuses to start instead."""
    asked: list[Path] = []

    def stuck_at_the_end(workspace: Path, claim: Claim) -> int:
        asked.append(workspace)
        raise TemporaryFault("processes [7] of an earlier run cannot be ended")

    monkeypatch.setattr("tasks_app.agent.claude.kill_own_processes", stuck_at_the_end)
    result = speaking(tmp_path, json.dumps(ASSISTANT) + "\n").start("no-questions")
    assert result.ending is Ending.FAILED
    assert len(asked) == 1


def test_a_program_that_does_not_end_after_its_question_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: otherwise the answer would wait for it until the run's timeout."""
    monkeypatch.setattr(claude, "EXIT_SECONDS", 0.0)
    deferred = {"id": "toolu_1", "name": "AskUserQuestion", "input": {"questions": [{"question": "Red?"}]}}
    said = {
        "type": "result", "subtype": "success", "is_error": False, "stop_reason": "tool_deferred",
        "session_id": "s", "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1,
        "deferred_tool_use": deferred,
    }  # fmt: skip
    program = speaking(tmp_path, json.dumps(said) + "\n", end="time.sleep(600)")
    result = program.start("no-questions")
    assert result.ending is Ending.ASKED
    assert [item.question for ask in result.asks for item in ask.items] == ["Red?"]
    assert len(program.recorder.asks) == 1 and result.error == ""
    assert marked_processes(program.workspace) == []

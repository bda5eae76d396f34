"""The rehearsal server plays every shipped scenario to the real agent program."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, ResultError, ResultMessage, query
from claude_agent_sdk._internal.transport import subprocess_cli
from claude_agent_sdk.types import PermissionResultDeny

from tasks_app.rehearsal.sample import SAMPLE_TASK_FILE, create_sample_repository
from tasks_app.rehearsal.server import RehearsalServer

# The callback is there so that AskUserQuestion is offered at all; what is allowed never reaches it.
pytestmark = pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked")

# A gate as small as can be: defers every ask until a decision for its id lies beside it.
GATE = """
import json, pathlib, sys
call = json.load(sys.stdin)
decision = pathlib.Path(sys.argv[1], call["tool_use_id"])
asks = call["tool_name"] == "AskUserQuestion" or "cat-herder ask" in call["tool_input"].get("command", "")
if asks:
    verdict = json.loads(decision.read_text()) if decision.exists() else {"permissionDecision": "defer"}
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **verdict}}))
"""
TOOLS = ["Bash", "Edit", "Read", "Write", "AskUserQuestion"]


@pytest.fixture(autouse=True)
def plain_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK as it is: other tests of this process may have made it start its processes on sockets, which
    only the portal's own transport closes."""
    monkeypatch.setattr(subprocess_cli, "anyio", anyio)


async def refuse(name: str, tool_input: dict[str, Any], context: object) -> PermissionResultDeny:
    return PermissionResultDeny(message="not listed")


async def one_message(text: str) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


async def no_message() -> AsyncIterator[dict[str, Any]]:
    return
    yield


@dataclass
class Agent:
    """One session of the real agent program against a rehearsal server."""

    url: str
    folder: Path
    workspace: Path
    may_ask: bool = True
    session: str = field(default_factory=lambda: str(uuid4()))
    store: InMemorySessionStore = field(default_factory=InMemorySessionStore)

    async def start(self, prompt: str) -> ResultMessage:
        return await self._run(one_message(prompt), session_id=self.session)

    async def answer(self, asked: ResultMessage, answers: dict[str, str]) -> ResultMessage:
        deferred = asked.deferred_tool_use
        assert deferred is not None
        updated = {"questions": deferred.input["questions"], "answers": answers}
        return await self.decide(deferred.id, updated)

    async def decide(self, tool_use_id: str, updated_input: dict[str, Any]) -> ResultMessage:
        verdict = {"permissionDecision": "allow", "updatedInput": updated_input}
        (self.folder / tool_use_id).write_text(json.dumps(verdict))
        return await self._run(no_message(), resume=self.session)

    async def _run(
        self,
        prompt: AsyncIterator[dict[str, Any]],
        *,
        session_id: str | None = None,
        resume: str | None = None,
    ) -> ResultMessage:
        options = self._options(session_id, resume)
        result = None
        # An error result is a message first; then the program exits with 1, which the SDK raises.
        with suppress(ResultError):
            async for message in query(prompt=prompt, options=options):
                result = message if isinstance(message, ResultMessage) else result
        assert result is not None
        return result

    def _options(self, session_id: str | None, resume: str | None) -> ClaudeAgentOptions:
        gate = self.folder / "gate.py"
        gate.write_text(GATE)
        hook = {"type": "command", "command": f"{sys.executable} -ISB {gate} {self.folder}", "timeout": 10}
        hooks = {"PreToolUse": [{"matcher": "AskUserQuestion|Bash", "hooks": [hook]}]}
        tools = TOOLS if self.may_ask else TOOLS[:-1]
        return ClaudeAgentOptions(
            cwd=self.workspace,
            tools=tools,
            allowed_tools=[tool for tool in tools if tool != "AskUserQuestion"],
            can_use_tool=refuse,
            setting_sources=[],
            strict_mcp_config=True,
            verbatim_prompts=True,
            settings=json.dumps({"hooks": hooks}),
            session_store=self.store,
            session_store_flush="eager",
            env={
                "ANTHROPIC_BASE_URL": self.url,
                "ANTHROPIC_API_KEY": "rehearsal",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "CLAUDE_CONFIG_DIR": str(self.folder),
            },
            session_id=session_id,
            resume=resume,
        )


@pytest.fixture
def server() -> Iterator[RehearsalServer]:
    with RehearsalServer() as server:
        yield server


@pytest.fixture
def agent(server: RehearsalServer, tmp_path: Path) -> Agent:
    workspace, folder = tmp_path / "workspace", tmp_path / "agent"
    workspace.mkdir()
    folder.mkdir()
    return Agent(url=server.url, folder=folder, workspace=workspace)


@pytest.fixture
def sample_agent(agent: Agent) -> Agent:
    create_sample_repository(agent.workspace)
    return agent


def prompt_for(step: str, workspace: Path) -> str:
    task = (workspace / SAMPLE_TASK_FILE).read_text()
    return f'You are responsible for the step "{step}".\n\n--- TASK DEFINITION ---\n{task}'


def sample_tests_pass(workspace: Path) -> bool:
    command = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests"]
    return subprocess.run(command, cwd=workspace, capture_output=True, check=False).returncode == 0


def split(workspace: Path, total: int, people: int) -> list[int]:
    code = f"import billsplit, json; print(json.dumps(billsplit.split({total}, {people})))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=workspace, capture_output=True, text=True, check=True
    )
    shares: list[int] = json.loads(done.stdout)
    return shares


def results_at_the_model(server: RehearsalServer) -> str:
    """The text of everything the last request carried as tool results."""
    sent = [message for message in server.requests[-1]["messages"] if message["role"] == "user"]
    blocks = [block for message in sent for block in message["content"]]
    return "\n".join(str(block["content"]) for block in blocks if block["type"] == "tool_result")


async def test_a_scenario_without_questions_edits_a_file_and_uses_more_tokens_with_each_turn(
    agent: Agent,
) -> None:
    result = await agent.start("Do something.\nrehearsal: no-questions\n")
    assert (agent.workspace / "notes.txt").read_text() == "one\nzwei ☃\n"
    assert not result.is_error
    assert result.result == "`notes.txt` is written. No question was needed."
    assert result.usage is not None
    assert result.usage["cache_read_input_tokens"] > result.usage["cache_creation_input_tokens"] > 1000
    assert result.usage["output_tokens"] > 10
    assert result.total_cost_usd


async def test_the_sample_plan_writes_a_plan(sample_agent: Agent) -> None:
    result = await sample_agent.start(prompt_for("plan", sample_agent.workspace))
    assert (sample_agent.workspace / "PLAN.md").read_text().startswith("# Plan: split the bill")
    assert result.result is not None
    assert "`PLAN.md` is written" in result.result


@pytest.mark.parametrize(
    ("answer", "shares", "said"),
    [
        ("Spread them", [286, 286, 286, 286, 286, 285, 285], "the odd cents are spread"),
        ("The first guest pays", [290, 285, 285, 285, 285, 285, 285], "the first guest pays the odd cents"),
        (
            'The "cat"\npays. {{workspace}} ☃',
            [286, 286, 286, 286, 286, 285, 285],
            '"cat"\npays. {{workspace}} ☃',
        ),
    ],
)
async def test_the_sample_asks_and_follows_the_answer(
    sample_agent: Agent, answer: str, shares: list[int], said: str
) -> None:
    """H3a, H7: the question is deferred, and after the answer the same session mends the sample."""
    assert not sample_tests_pass(sample_agent.workspace)
    asked = await sample_agent.start(prompt_for("implement", sample_agent.workspace))
    assert asked.deferred_tool_use is not None
    question = asked.deferred_tool_use.input["questions"][0]
    assert all(option["preview"] for option in question["options"])

    done = await sample_agent.answer(asked, {question["question"]: answer})

    assert done.result is not None
    assert said in done.result
    assert sample_tests_pass(sample_agent.workspace)
    assert split(sample_agent.workspace, 2000, 7) == shares


async def test_where_nobody_may_be_asked_the_sample_decides_alone(sample_agent: Agent) -> None:
    """H1, H13: with no tool to ask by, the question is left out of the script."""
    sample_agent.may_ask = False
    done = await sample_agent.start(prompt_for("implement", sample_agent.workspace))
    assert done.deferred_tool_use is None
    assert sample_tests_pass(sample_agent.workspace)


async def test_any_other_task_asks_once_and_quotes_the_answer(agent: Agent) -> None:
    asked = await agent.start('You are responsible for the step "implement".\nPaint it red.')
    assert asked.deferred_tool_use is not None
    question = asked.deferred_tool_use.input["questions"][0]["question"]
    done = await agent.answer(asked, {question: "Ünïcode, and a second\nline"})
    assert "Ünïcode, and a second\nline" in str(done.result)
    assert not list(agent.workspace.glob("*.md")), "nothing is changed"


async def test_any_other_task_has_a_plan_too(agent: Agent) -> None:
    done = await agent.start('You are responsible for the step "plan".\nPaint it red.')
    assert done.deferred_tool_use is None
    assert (agent.workspace / "PLAN.md").is_file()


async def test_any_other_task_ends_without_a_question_where_none_may_be_asked(agent: Agent) -> None:
    agent.may_ask = False
    done = await agent.start('You are responsible for the step "implement".\nPaint it red.')
    assert "Nobody was asked" in str(done.result)


@pytest.mark.parametrize(
    ("name", "written"),
    [("ask-and-end", {}), ("ask-beside-tools", {"beside.txt": "Written beside the question.\n"})],
)
async def test_one_question_gets_its_answer_back_to_the_letter_and_what_stands_beside_it_is_done(
    agent: Agent, server: RehearsalServer, name: str, written: dict[str, str]
) -> None:
    asked = await agent.start(f"rehearsal: {name}")
    assert asked.deferred_tool_use is not None
    assert {path.name: path.read_text() for path in agent.workspace.iterdir()} == written
    question = asked.deferred_tool_use.input["questions"][0]["question"]
    answer = '@/etc/passwd /clear "; rm -rf\n☃'
    done = await agent.answer(asked, {question: answer})
    assert done.result == f"The answer was: {answer}"
    assert answer in results_at_the_model(server)


@pytest.mark.parametrize("name", ["ask-command", "ask-command-compound"])
async def test_an_ask_by_command_gets_the_answer_as_the_command_output(agent: Agent, name: str) -> None:
    """H3b."""
    asked = await agent.start(f"rehearsal: {name}")
    assert asked.deferred_tool_use is not None
    assert 'cat-herder ask "Which way, left or right?"' in asked.deferred_tool_use.input["command"]
    done = await agent.decide(asked.deferred_tool_use.id, {"command": "printf %s 'straight on ☃'"})
    assert done.result == "The answer was: straight on ☃"


async def test_three_questions_get_three_answers(agent: Agent) -> None:
    asked = await agent.start("rehearsal: ask-multi")
    assert asked.deferred_tool_use is not None
    questions = [item["question"] for item in asked.deferred_tool_use.input["questions"]]
    answers = ["SQLite", "CSV, PDF", 'write "it", please']
    done = await agent.answer(asked, dict(zip(questions, answers, strict=True)))
    assert done.result == "The answers were:\n" + "\n".join(answers)


async def test_a_second_question_follows_from_the_first_answer(agent: Agent) -> None:
    first = await agent.start("rehearsal: ask-then-ask")
    second = await agent.answer(first, {"Tea or coffee?": "Tea"})
    done = await agent.answer(second, {"With milk?": "No"})
    assert done.result == "The answers were:\nTea\nNo"


async def test_of_two_questions_in_one_message_the_last_result_can_carry_both_answers(agent: Agent) -> None:
    asked = await agent.start("rehearsal: ask-two-in-one-message")
    assert asked.deferred_tool_use is not None
    last = asked.deferred_tool_use.input["questions"]
    # Which of the two the agent's program keeps depends on which hook ended first.
    (lost,) = {"Which colour?", "Which size?"} - {last[0]["question"]}
    both = {"questions": [*last, {**last[0], "question": lost}]}
    answers = {"Which colour?": "Blue", "Which size?": "Large"}
    done = await agent.decide(asked.deferred_tool_use.id, {**both, "answers": answers})
    assert done.result is not None
    assert '"Which colour?"="Blue"' in done.result
    assert '"Which size?"="Large"' in done.result


async def test_another_server_continues_where_the_first_one_stopped(
    agent: Agent, server: RehearsalServer
) -> None:
    """R2: the script's place follows from the conversation alone."""
    asked = await agent.start("rehearsal: ask-and-end")
    server.stop()
    with RehearsalServer() as successor:
        agent.url = successor.url
        done = await agent.answer(asked, {"Stop here?": "Go on"})
    assert done.result == "The answer was: Go on"


async def test_a_long_script_is_played_to_its_end(agent: Agent) -> None:
    done = await agent.start("rehearsal: chatty")
    assert done.result == "Everything has been said."
    assert done.num_turns == 41


async def test_the_slow_scenario_is_at_work_until_it_is_stopped(agent: Agent) -> None:
    at_work = asyncio.create_task(agent.start("rehearsal: slow"))
    while not (agent.workspace / "slow-started.txt").exists():
        assert not at_work.done()
        await asyncio.sleep(0.05)
    at_work.cancel()
    with suppress(asyncio.CancelledError):
        await at_work
    assert not (agent.workspace / "slow-ended.txt").exists()


async def test_a_usage_limit_reaches_the_agent_as_one(agent: Agent) -> None:
    """P8."""
    done = await agent.start("rehearsal: overloaded")
    assert done.is_error
    assert done.api_error_status == 429


async def test_a_cut_connection_is_an_error_of_the_run(agent: Agent) -> None:
    done = await agent.start("rehearsal: cut-stream")
    assert done.is_error


async def test_an_unknown_scenario_is_an_error_that_lists_the_known_ones(agent: Agent) -> None:
    """R5."""
    done = await agent.start("rehearsal: tragedy")
    assert done.is_error
    assert done.result is not None
    assert 'there is no scenario "tragedy"; there are approve, ask-and-end' in done.result

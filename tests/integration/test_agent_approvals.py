"""Approvals and plans behind the port: the same for the quick agent and for the real program (H3, R1).

Nothing that wants approval is made without it, nothing approved is made twice, whatever stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks_app.agent.call_permissions import AnswersFolder, GivenAnswer, permission_for, refuse_as_set_aside
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import CallPermission, Ending, RunResult
from tasks_app.core.types import ALLOW_CALL, ALLOW_COMMAND, REVIEW_PLAN
from tasks_app.rehearsal.conversation import Conversation
from tasks_app.rehearsal.script import Reply
from tasks_app.rehearsal.server import RehearsalServer, _Handler
from tests import machine
from tests.agents import Bench, connection_to, fake_bench, question, real_bench

SANDBOXED = pytest.param("sandboxed", marks=pytest.mark.bubblewrap)
RULES = ("Bash(*guarded*)", "Write(**/*.sql)", "Bash(git tag*)")


@pytest.fixture(params=["fake", SANDBOXED])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "fake":
        yield fake_bench(tmp_path)
        return
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as made:
        yield made


@pytest.fixture(params=[SANDBOXED])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as made:
        yield made


def start(bench: Bench, scenario: str, **more: Any) -> RunResult:
    more = {"ask_before": RULES, **more}
    return bench.run(bench.order(f"Do as the script says.\nrehearsal: {scenario}", **more))


def decided(bench: Bench, result: RunResult, *, approved: bool, notes: str = "", **more: Any) -> RunResult:
    (ask,) = result.asks
    given = GivenAnswer(ask, {}, notes, by="Ada", approved=approved)
    return handed(bench, result, permission_for(given, [], folder=AnswersFolder(bench.answers)), **more)


def handed(bench: Bench, result: RunResult, permission: CallPermission, **more: Any) -> RunResult:
    more = {"ask_before": RULES, **more}
    return bench.run(bench.order(None, resume=True, permissions={result.deferred: permission}, **more))


def lines(bench: Bench, name: str) -> int:
    path = bench.workspace / name
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("may_ask", [True, False])
def test_an_approved_call_is_made_once_and_its_result_is_its_own(bench: Bench, may_ask: bool) -> None:
    """Also at a threshold of 0: it is a rule of the project, not the agent's choice."""
    result = start(bench, "approval-fails", may_ask=may_ask)
    assert result.ending is Ending.ASKED
    (ask,) = result.asks
    assert (ask.kind, ask.tool_use_id) == ("approval", result.deferred)
    assert ask.items[0].question == f"{ALLOW_COMMAND}\n\n`echo guarded >> guarded.txt; exit 3`"
    assert ask.evidence[0].text == "echo guarded >> guarded.txt; exit 3"
    assert lines(bench, "guarded.txt") == 0
    after = decided(bench, result, approved=True, may_ask=may_ask, notes="Mind the gap.")
    assert (after.ending, after.error) == (Ending.FINISHED, "")
    assert after.delivered == {result.deferred}
    assert lines(bench, "guarded.txt") == 1


def test_a_denied_call_is_not_made_and_the_model_reads_who_denied_it_and_why(bench: Bench) -> None:
    result = start(bench, "approval-fails")
    after = decided(bench, result, approved=False, notes="Not on a Friday ☃ @/etc/passwd")
    assert (after.ending, after.delivered) == (Ending.FINISHED, frozenset({result.deferred}))
    assert "Ada denied this call: Not on a Friday ☃ @/etc/passwd" in bench.result_of(result.deferred)
    assert lines(bench, "guarded.txt") == 0


def test_what_matches_no_pattern_runs_beside_the_one_that_waits(bench: Bench) -> None:
    result = start(bench, "approval-beside-work")
    assert [ask.kind for ask in result.asks] == ["approval"]
    assert lines(bench, "guarded.txt") == 0
    assert {"before.txt", "after.txt"} <= {path.name for path in bench.workspace.iterdir()}
    assert decided(bench, result, approved=True).ending is Ending.FINISHED
    assert lines(bench, "guarded.txt") == 1


def test_of_two_in_one_message_none_is_made_and_each_is_asked_about_alone(bench: Bench) -> None:
    """One of them has vanished from the session, and it may be the one that had to come first."""
    both = start(bench, "two-approvals")
    assert (both.ending, both.asks) == (Ending.ASKED, ())
    first = handed(bench, both, refuse_as_set_aside([], folder=AnswersFolder(bench.answers)))
    assert "in a message of its own" in bench.result_of(both.deferred)
    assert (lines(bench, "first.txt"), lines(bench, "second.txt")) == (0, 0)
    assert "first.txt" in first.asks[0].items[0].question
    second = decided(bench, first, approved=True)
    assert (lines(bench, "first.txt"), lines(bench, "second.txt")) == (1, 0)
    assert "second.txt" in second.asks[0].items[0].question
    assert decided(bench, second, approved=False, notes="No.").ending is Ending.FINISHED
    assert (lines(bench, "first.txt"), lines(bench, "second.txt")) == (1, 0)


def test_a_question_beside_an_approval_is_asked_and_the_call_is_set_aside(bench: Bench) -> None:
    """H3: no question is lost; its answer rides along, and what wants approval is asked about later."""
    result = start(bench, "approval-beside-question")
    (ask,) = result.asks
    assert (ask.kind, ask.items[0].question) == ("clarification", "Which colour?")
    assert ask.tool_use_id != result.deferred
    given = GivenAnswer(ask, {"Which colour?": "Blue"})
    later = handed(bench, result, refuse_as_set_aside([given], folder=AnswersFolder(bench.answers)))
    told = bench.result_of(result.deferred)
    assert "What you asked in it was asked" in told and "not made either" not in told
    assert "was not made" in told and "Which colour?" in told and "Blue" in told
    assert [one.kind for one in later.asks] == ["approval"]
    assert lines(bench, "guarded.txt") == 0
    assert decided(bench, later, approved=True).ending is Ending.FINISHED
    assert lines(bench, "guarded.txt") == 1


#: Two questions, two approvals or one of each, in one message.
QUESTIONS = [
    {"name": "AskUserQuestion", "input": {"questions": [question(text, "A", "B")]}}
    for text in ("Tea?", "Cups?")
]
GUARDED = [
    {"name": "Bash", "input": {"command": f"echo guarded >> {name}.txt", "description": "A command"}}
    for name in ("first", "second")
]
LOOK = {"name": "Bash", "input": {"command": "sleep 1; ls", "description": "A command"}}


@pytest.mark.once(on="sqlite")
@pytest.mark.parametrize(
    "calls",
    [QUESTIONS, GUARDED, [QUESTIONS[0], GUARDED[0]], [GUARDED[0], QUESTIONS[0]], [*GUARDED, LOOK]],
    ids=["questions", "approvals", "question first", "approval first", "beside work"],
)
@pytest.mark.bubblewrap
def test_a_later_prompt_does_not_go_back_to_a_call_that_was_not_kept(
    tmp_path: Path, calls: list[dict[str, Any]]
) -> None:
    """The next prompt follows what the model has said since, and nobody is asked about the call again."""
    (tmp_path / "scripts").mkdir()
    turns = [{"tools": calls}, {"text": "Said since."}, {"text": "All right."}]
    script = {"name": "calls", "about": "Calls.", "turns": turns}
    (tmp_path / "scripts" / "calls.yaml").write_text(yaml.safe_dump(script))
    with RehearsalServer(scenarios=tmp_path / "scripts") as server:
        bench = Bench(
            ClaudeAgent(machine.sandbox(tmp_path / "data"), connection_to(server)), tmp_path, server
        )
        both = start(bench, "calls")
        given = {ask.tool_use_id: GivenAnswer(ask, {ask.items[0].question: "A"}) for ask in both.asks}
        main = given.pop(both.deferred, None)
        folder, others = AnswersFolder(bench.answers), list(given.values())
        permission = (
            permission_for(main, others, folder=folder)
            if main
            else refuse_as_set_aside(others, folder=folder)
        )
        assert handed(bench, both, permission).ending is Ending.FINISHED
        later = bench.run(bench.order("Go on.", resume=True, ask_before=RULES))
        assert (later.ending, later.asks, later.error) == (Ending.FINISHED, (), "")
        assert "Said since." in str(server.requests[-1]["messages"])


def test_without_a_rule_nothing_is_asked(bench: Bench) -> None:
    """H13"""
    result = start(bench, "approval-beside-work", ask_before=(), may_ask=False)
    assert (result.ending, result.asks) == (Ending.FINISHED, ())
    assert lines(bench, "guarded.txt") == 1


def test_files_are_shown_as_they_would_be_written_and_edited(real: Bench) -> None:
    result = start(real, "approve-files")
    assert result.asks[0].items[0].question == f"{ALLOW_CALL}\n\nWrite `guarded.sql`"
    assert [(one.kind, one.title, one.text) for one in result.asks[0].evidence if one.kind != "rule"] == [
        ("file", "guarded.sql", "select 1;\n")
    ]
    assert not (real.workspace / "guarded.sql").exists()
    edit = decided(real, result, approved=True)
    assert (real.workspace / "guarded.sql").read_text() == "select 1;\n"
    (shown,) = (one for one in edit.asks[0].evidence if one.kind != "rule")
    assert shown.kind == "diff" and "-select 1;\n+select 2;" in shown.text
    assert decided(real, edit, approved=True).ending is Ending.FINISHED
    assert (real.workspace / "guarded.sql").read_text() == "select 2;\n"


def test_an_approval_holds_for_the_input_that_was_shown_only(real: Bench) -> None:
    result = start(real, "approval-fails")
    other = CallPermission(True, for_input={"command": "echo guarded > other.txt"})
    after = handed(real, result, other)
    assert "not the call that a human approved" in real.result_of(result.deferred)
    assert after.ending is Ending.FINISHED
    assert lines(real, "guarded.txt") == 0


def test_permissions_of_a_step_let_nothing_past_the_gate(real: Bench) -> None:
    allowed = ("Bash(echo:*)", "Bash")
    result = start(real, "approval-fails", allowed_tools=allowed)
    assert [ask.kind for ask in result.asks] == ["approval"]
    assert lines(real, "guarded.txt") == 0


def test_a_session_taken_up_without_a_decision_waits_at_the_same_call(bench: Bench) -> None:
    """As after a worker's death between the halt and the storing of it."""
    result = start(bench, "approval-fails")
    again = bench.run(bench.order(None, resume=True, ask_before=RULES))
    assert (again.ending, again.deferred) == (Ending.ASKED, result.deferred)
    assert again.asks == result.asks
    assert decided(bench, again, approved=True).ending is Ending.FINISHED
    assert lines(bench, "guarded.txt") == 1


def test_a_plan_is_reviewed_before_anything_is_written(bench: Bench) -> None:
    result = start(bench, "plan-too-early", planning=True)
    (ask,) = result.asks
    assert (ask.kind, ask.items[0].question) == ("plan", REVIEW_PLAN)
    assert [(one.kind, one.text) for one in ask.evidence] == [("markdown", "# Plan\n")]
    assert lines(bench, "early.txt") == 0
    if bench.real:
        assert lines(bench, "early-too.txt") == 0
    after = decided(bench, result, approved=True, planning=True)
    assert (after.ending, after.error) == (Ending.FINISHED, "")
    assert (lines(bench, "late.txt"), lines(bench, "late-too.txt")) == (1, 1)


def test_a_plan_that_is_sent_back_is_revised_and_asked_about_again(bench: Bench) -> None:
    result = start(bench, "plan-first", planning=True)
    again = decided(bench, result, approved=False, notes="Say whom you greet.", planning=True)
    assert "Ada sent the plan back: Say whom you greet." in bench.result_of(result.deferred)
    assert again.asks[0].kind == "plan" and "revised" in again.asks[0].evidence[0].text
    assert not (bench.workspace / "GREETING.md").exists()
    after = decided(bench, again, approved=True, planning=True)
    assert after.ending is Ending.FINISHED
    assert (bench.workspace / "GREETING.md").read_text() == "Hello!\n"


def test_where_no_stream_arrives_nothing_runs_unapproved(
    real: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: asked again without a stream, the model's message is one entry with all calls. For such an entry,
    the program ignores deferrals and makes the calls."""
    send = _Handler._send_reply

    def send_whole(handler: _Handler, conversation: Conversation, reply: Reply) -> None:
        if conversation.stream and conversation.tools:
            handler.send_response(200)
            handler.send_header("content-type", "text/event-stream")
            handler.send_header("content-length", "1000")
            handler.end_headers()
            handler.close_connection = True
        else:
            send(handler, conversation, reply)

    monkeypatch.setattr(_Handler, "_send_reply", send_whole)
    result = start(real, "approval-beside-work", variables={"CLAUDE_CODE_MAX_RETRIES": "0"})
    assert lines(real, "guarded.txt") == 0
    assert result.ending is Ending.FAILED

"""The table of answers: whatever stood beside a waiting call, the next request has its answer (H3, H7, R1).

The real agent program at the scripted Messages API. A new version of the program is held against this table,
which the summary of the test run shows. What counts is what the model reads: the body of the next request.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks_app.agent.call_permissions import AnswersFolder, GivenAnswer, permission_for
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import CallPermission, Ending, RunResult
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Placement
from tests import machine
from tests.agents import Bench, connection_to

pytestmark = pytest.mark.bubblewrap

RULES = ("Bash(*guarded*)",)
ANSWER = 'The blue one, "please" ☃'
REASON = "Not on a Friday ☃"
#: Words of the portal that come with an answer, such as new decisions.
NOTE = "[From the portal: the number of this answer is {number}.]"
#: What the program writes where a call has no result, and into a conversation that it takes for interrupted.
BROKEN = ("[Tool result missing", "[Tool call ", "No response requested.")

NEIGHBOURS = {
    "quick": ("Bash", {"command": "echo quickly", "description": "Quick"}, "quickly"),
    "slow": ("Bash", {"command": "sleep 0.4; echo slowly", "description": "Slow"}, "slowly"),
    "read": ("Read", {"file_path": "{{workspace}}/poem.txt"}, "Roses are red"),
}
GUARDED = ("Bash", {"command": "echo guarded | tee -a guarded.txt", "description": "Guarded"})
OPTIONS = [{"label": "Blue", "description": "Like the sky."}, {"label": "Red", "description": "No."}]
ITEM = {"question": "Which one?", "header": "Which", "multiSelect": False, "options": OPTIONS}
#: Each kind of waiting call: the call, whether a human agrees, and what the model must read as its result.
KINDS = {
    "question": (("AskUserQuestion", {"questions": [ITEM]}), True, f'"Which one?"="{ANSWER}"'),
    "command": (("Bash", {"command": 'cat-herder ask "Which one?"', "description": "Ask"}), True, ANSWER),
    "approved": (GUARDED, True, "guarded"),
    "denied": (GUARDED, False, f"Ada denied this call: {REASON}"),
    "plan approved": (("ExitPlanMode", {"plan": "# Plan"}), True, "approved"),
    "plan sent back": (("ExitPlanMode", {"plan": "# Plan"}), False, f"Ada sent the plan back: {REASON}"),
}
#: Where the session goes on: in the same folders, in folders that are empty, or below another data directory.
HOMES = ("same home", "empty home", "other host")


@dataclass(frozen=True)
class Wait:
    """One message with a waiting call, and what stands before and after it."""

    kind: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([*self.before, f"[{self.kind}]", *self.after])

    def tools(self) -> list[dict[str, Any]]:
        calls = [
            *(NEIGHBOURS[name][:2] for name in self.before),
            KINDS[self.kind][0],
            *(NEIGHBOURS[name][:2] for name in self.after),
        ]
        return [{"name": name, "input": given} for name, given in calls]

    @property
    def expected(self) -> list[str]:
        """What the results of the message hold, in the order of the calls."""
        before, after = ([NEIGHBOURS[name][2] for name in names] for names in (self.before, self.after))
        return [*before, KINDS[self.kind][2], *after]


BESIDE = (
    ((), ("slow",)),
    (("quick",), ("read",)),
    (("read", "slow"), ("quick",)),
    (("slow",), ()),
    (("read",), ("quick", "slow")),
    ((), ("quick", "slow", "read")),
)


def sessions() -> Iterator[tuple[Wait, ...]]:
    """Sessions of waits: each kind with each set of neighbours, in a first message, a later one, and one that
    follows an answer at once."""
    for kind in ("question", "command", "approved", "denied", "plan sent back"):
        waits = [Wait(kind, *beside) for beside in BESIDE]
        yield tuple(waits[:3])
        yield tuple(waits[3:])
    for number, beside in enumerate(BESIDE):  # a step whose plan is approved plans no more
        waits = [
            Wait("plan sent back"),
            Wait("plan approved", *beside),
            Wait("approved", *BESIDE[number - 1]),
        ]
        yield tuple(waits[number % 2 :])


TABLE = list(sessions())


@dataclass
class Desk:
    """A bench whose session may move to other folders between two runs."""

    agent: ClaudeAgent
    bench: Bench
    folder: Path

    @classmethod
    def make(cls, folder: Path, server: RehearsalServer) -> Desk:
        base = folder / "first"
        agent = ClaudeAgent(machine.sandbox(base / "data"), connection_to(server))
        bench = Bench(agent, base, server)
        (bench.workspace / "poem.txt").write_text("Roses are red\n")
        return cls(agent, bench, folder)

    def go_to(self, home: str) -> None:
        """Have the next run begin there."""
        if home == "empty home":
            shutil.rmtree(self.bench.home / ".claude")
        if home == "other host":
            shown_at = self.folder / "first"
            base = self.folder / f"host-{self.bench.runs}"
            shutil.move(self.bench.base, base)
            shutil.rmtree(base / "data" / "tasks" / "1" / "home" / ".claude")
            shown_at.mkdir(exist_ok=True)
            self.agent.sandbox = machine.sandbox(base / "data").placed(Placement(base, shown_at))
            self.bench.base = base

    def answers_folder(self) -> AnswersFolder:
        return AnswersFolder(self.bench.answers, self.agent.sandbox.placement)


def decision(asked: RunResult, kind: str, folder: AnswersFolder, *, note: str = "") -> CallPermission:
    (ask,) = asked.asks
    agrees = KINDS[kind][1]
    answers = {item.question: ANSWER for item in ask.items} if ask.kind == "clarification" else {}
    given = GivenAnswer(ask, answers, "" if agrees else REASON, by="Ada", approved=agrees)
    return permission_for(given, [], folder=folder, note=note)


def turns_of(server: RehearsalServer) -> list[dict[str, Any]]:
    return [request for request in server.requests if request.get("tools")]


def blocks_of(request: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    contents = [message["content"] for message in request["messages"]]
    return [
        block
        for content in contents
        if isinstance(content, list)
        for block in content
        if block["type"] == kind
    ]


def text_of(block: dict[str, Any]) -> str:
    content = block.get("content", "")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def assert_arrived(request: dict[str, Any], waits: Sequence[Wait]) -> None:
    """Assert that the model reads one result of each call, the right one, and nothing false."""
    results = {block["tool_use_id"]: text_of(block) for block in blocks_of(request, "tool_result")}
    calls = [block["id"] for block in blocks_of(request, "tool_use")]
    assert Counter(block["tool_use_id"] for block in blocks_of(request, "tool_result")) == Counter(calls)
    for sign in BROKEN:
        assert sign not in str(request["messages"])
    expected = [text for wait in waits for text in wait.expected]
    read = [results[call] for call in calls if results[call].strip() != "early"]
    assert len(read) == len(expected), read
    for text, wanted in zip(read, expected, strict=True):
        assert wanted in text


def scenario(folder: Path, name: str, turns: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    script = {"name": name, "about": "A row of the table.", "turns": turns}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(script))


def early() -> dict[str, Any]:
    return {"tools": [{"name": "Bash", "input": {"command": "echo early", "description": "Early"}}]}


@pytest.mark.parametrize("number", range(len(TABLE)), ids=[" then ".join(map(str, row)) for row in TABLE])
def test_an_answer_is_in_the_next_request_whatever_stood_beside_its_call(
    number: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """H3, H7, R1: the row's waits in one session, each answered in a process of its own."""
    waits = TABLE[number]
    messages = [{"tools": wait.tools()} for wait in waits]
    scenario(tmp_path / "scenarios", "row", [messages[0], early(), *messages[1:], {"text": "The end."}])
    plans = any(wait.kind.startswith("plan") for wait in waits)
    with RehearsalServer(scenarios=tmp_path / "scenarios") as server:
        desk = Desk.make(tmp_path, server)
        bench = desk.bench
        result = bench.run(bench.order("rehearsal: row", ask_before=RULES, planning=plans))
        for done, wait in enumerate(waits, start=1):
            assert result.ending is Ending.ASKED, result.error
            home = HOMES[(number + done) % len(HOMES)]
            desk.go_to(home)
            waiting, requests = result.deferred, len(turns_of(server))
            note = NOTE.format(number=done)
            given = {waiting: decision(result, wait.kind, desk.answers_folder(), note=note)}
            more = {"ask_before": RULES, "planning": plans}
            result = bench.run(bench.order(None, resume=True, permissions=given, **more))
            assert result.delivered == {waiting}
            plans = plans and wait.kind != "plan approved"
            request = turns_of(server)[requests]
            assert_arrived(request, waits[:done])
            for number, earlier in enumerate(waits[:done], start=1):
                said = NOTE.format(number=number)
                assert str(request["messages"]).count(said) == 1
                results = [block for block in blocks_of(request, "tool_result") if said in text_of(block)]
                assert not results or earlier.kind != "question", "it would pass for the human's notes"
            place = ("first message", "later message", "after an answer")[done - 1]
            record_property("arrived", f"{wait}, {place}, {home}")
        assert (result.ending, result.text) == (Ending.FINISHED, "The end.")
        approved = sum(wait.kind == "approved" for wait in waits)
        guarded = bench.workspace / "guarded.txt"
        assert (guarded.read_text() if guarded.exists() else "") == "guarded\n" * approved


SUBAGENT = {"name": "Task", "input": {"description": "Help", "prompt": "Help.\nrehearsal: helper"}}


def start_with_helper(tmp_path: Path, server: RehearsalServer) -> tuple[Bench, RunResult]:
    bench = Desk.make(tmp_path, server).bench
    order = bench.order("rehearsal: row", ask_before=RULES, allowed_tools=("Bash", "Read", "Task"))
    return bench, bench.run(order)


@pytest.mark.parametrize("kind", ["command", "approved", "denied"])
def test_what_a_subagent_may_not_wait_for_the_agent_itself_asks(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """H3, R1: the sub-agent hands its call back, instead of ending without a word; a human is asked once."""
    wait = Wait(kind, ("quick",), ("slow",))
    scenario(tmp_path / "scenarios", "helper", [early(), {"tools": wait.tools()}, {"text": "I hand back."}])
    own = Wait(kind, (), ("read",))
    turns: list[dict[str, Any]] = [{"tools": [SUBAGENT]}, {"tools": own.tools()}, {"text": "The end."}]
    scenario(tmp_path / "scenarios", "row", turns)
    with RehearsalServer(scenarios=tmp_path / "scenarios") as server:
        bench, asked = start_with_helper(tmp_path, server)
        assert len(asked.asks) == 1 and asked.asks[0].tool_use_id == asked.deferred, asked.error
        refused = [
            text_of(block) for request in turns_of(server) for block in blocks_of(request, "tool_result")
        ]
        assert any("you are a sub-agent" in text for text in refused)
        assert not (bench.workspace / "guarded.txt").exists()
        given = {asked.deferred: decision(asked, kind, AnswersFolder(bench.answers))}
        more = {"ask_before": RULES, "allowed_tools": ("Bash", "Read", "Task")}
        requests = len(turns_of(server))
        done = bench.run(bench.order(None, resume=True, permissions=given, **more))
        assert done.ending is Ending.FINISHED and done.delivered == {asked.deferred}
        request = turns_of(server)[requests]
        results = {block["tool_use_id"]: text_of(block) for block in blocks_of(request, "tool_result")}
        assert len(results) == 3 and KINDS[kind][2] in results[asked.deferred]
        assert not any(sign in str(request["messages"]) for sign in BROKEN)
        guarded = bench.workspace / "guarded.txt"
        assert (guarded.read_text() if guarded.exists() else "") == "guarded\n" * (kind == "approved")
        record_property("arrived", f"{wait} in a sub-agent, then {own}")


def test_a_question_that_a_subagent_handed_back_in_vain_is_asked_after_the_run(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """H3: no question is lost; its answer comes with a prompt."""
    asking = {"tools": Wait("command", (), ("slow",)).tools()}
    scenario(tmp_path / "scenarios", "helper", [asking, {"text": "I hand back."}])
    scenario(tmp_path / "scenarios", "row", [{"tools": [SUBAGENT]}, {"text": "The end."}])
    with RehearsalServer(scenarios=tmp_path / "scenarios") as server:
        bench, asked = start_with_helper(tmp_path, server)
        assert (asked.ending, asked.deferred) == (Ending.ASKED, "")
        assert [item.question for ask in asked.asks for item in ask.items] == ["Which one?"]
        more = {"ask_before": RULES, "allowed_tools": ("Bash", "Read", "Task")}
        done = bench.run(bench.order(f"The human says: {ANSWER}", resume=True, **more))
        assert done.ending is Ending.FINISHED
        assert ANSWER in str(turns_of(server)[-1]["messages"][-1])
        record_property("arrived", "[command] slow in a sub-agent, handed back in vain: in a prompt")


@pytest.mark.parametrize("kinds", [("question", "command"), ("command", "question")], ids=" ".join)
def test_two_questions_in_one_message_beside_others_both_get_their_answers(
    kinds: tuple[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """H3: the session keeps one of the calls, whose result has both answers."""
    first, second = (Wait(kind).tools()[0] for kind in kinds)
    slow, quick = (
        dict(zip(("name", "input"), NEIGHBOURS[name][:2], strict=True)) for name in ("slow", "quick")
    )
    turns: list[dict[str, Any]] = [early(), {"tools": [first, slow, second, quick]}, {"text": "The end."}]
    scenario(tmp_path / "scenarios", "row", turns)
    with RehearsalServer(scenarios=tmp_path / "scenarios") as server:
        bench = Desk.make(tmp_path, server).bench
        asked = bench.run(bench.order("rehearsal: row"))
        assert [ask.way for ask in asked.asks] == [
            {"question": "AskUserQuestion"}.get(kind, kind) for kind in kinds
        ]
        requests = len(turns_of(server))
        done = bench.answer(asked, "Blue", "Red")
        assert done.ending is Ending.FINISHED and done.delivered == {asked.deferred}
        request = turns_of(server)[requests]
        results = {block["tool_use_id"]: text_of(block) for block in blocks_of(request, "tool_result")}
        assert "Blue" in results[asked.deferred] and "Red" in results[asked.deferred]
        assert {"early", "slowly", "quickly"} <= set(results.values())
        record_property("arrived", f"[{kinds[0]}] slow [{kinds[1]}] quick, later message")
        assert not any(sign in str(request["messages"]) for sign in BROKEN), request["messages"][-2:]

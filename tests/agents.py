"""Agents to run without a portal: the fake and the real one, each with folders and a recorder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tasks_app.agent.call_permissions import AnswersFolder, GivenAnswer, permission_for
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.connection import Connection
from tasks_app.agent.port import Agent, AgentEvent, DollarsLeft, RunOrder, RunPaths, RunResult
from tasks_app.core.types import Usage, main_model
from tasks_app.rehearsal.scenario import SHIPPED
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Sandbox
from tests import fake_agent, fake_script

OWN_SCENARIOS = Path(__file__).parent / "integration" / "scenarios"


class MemoryRecorder:
    """Keeps what a run reports. `looked` is called at each tick, `heard` with each event; all may raise."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.used: list[tuple[Usage, str]] = []
        self.transcripts: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self.left = DollarsLeft()
        self.asks: list[RunResult] = []
        self.looked: Callable[[], None] = lambda: None
        self.heard: Callable[[AgentEvent], None] = lambda event: None
        self.heard_asks: Callable[[RunResult], None] = lambda result: None

    def record(self, events: Sequence[AgentEvent]) -> None:
        self.events += events
        for event in events:
            self.heard(event)

    def record_usage(self, by_model: Mapping[str, Usage]) -> None:
        self.used.append((sum(by_model.values(), Usage()), main_model(by_model)))

    def asked(self, result: RunResult) -> None:
        self.asks.append(result)
        self.heard_asks(result)

    def dollars_left(self) -> DollarsLeft:
        return self.left

    def tick(self) -> None:
        self.looked()

    def append_transcript(self, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        self.transcripts.setdefault(_place(key), []).extend(entries)

    def load_transcript(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        return self.transcripts.get(_place(key))

    def transcript_subpaths(self, key: Mapping[str, str]) -> list[str]:
        return [place[2] for place in self.transcripts if place[:2] == _place(key)[:2] and place[2]]

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [entry for entries in self.transcripts.values() for entry in entries]


def _place(key: Mapping[str, str]) -> tuple[str, str, str]:
    return key["project_key"], key["session_id"], key.get("subpath", "")


@dataclass
class Bench:
    """One agent, one session, and a portal's folders around it."""

    agent: Agent
    base: Path
    server: RehearsalServer | None = None
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    session: str = field(default_factory=lambda: str(uuid4()))
    may_ask: bool = True
    runs: int = 0
    cost: float = 0.0

    def __post_init__(self) -> None:
        for folder in (self.workspace, self.home, self.answers):
            folder.mkdir(parents=True)
        (self.base / "data" / "secret_key").write_text("the portal's own secret")

    @property
    def real(self) -> bool:
        return self.server is not None

    @property
    def task(self) -> Path:
        return self.base / "data" / "tasks" / "1"

    @property
    def workspace(self) -> Path:
        return self.task / "workspace"

    @property
    def home(self) -> Path:
        return self.task / "home"

    @property
    def answers(self) -> Path:
        return self.task / "answers"

    def order(self, prompt: str | None, **more: Any) -> RunOrder:
        self.runs += 1
        run = self.task / f"run-{self.runs}"
        run.mkdir()
        paths = RunPaths(self.workspace, self.home, self.answers, run, self.task / "lock")
        more = {"may_ask": self.may_ask, "cost_before": self.cost, **more}
        return RunOrder(self.session, paths, prompt, **more)

    def run(self, order: RunOrder) -> RunResult:
        result = self.agent.run(order, self.recorder)
        self.cost += result.usage.cost_usd
        return result

    def start(self, scenario: str) -> RunResult:
        return self.run(self.order(f"Do as the script says.\nrehearsal: {scenario}"))

    def answer(self, asked: RunResult, *answers: str, notes: str = "") -> RunResult:
        """Answer everything that was asked, item by item, and go on in the session."""
        texts = iter(answers)
        given = [
            GivenAnswer(
                ask, {item.question: next(texts) for item in ask.items}, notes, name=f"given-{number}"
            )
            for number, ask in enumerate(asked.asks, start=1)
        ]
        main = next(one for one in given if one.ask.tool_use_id == asked.deferred)
        others = [one for one in given if one is not main]
        permission = permission_for(main, others, folder=AnswersFolder(self.answers))
        return self.run(self.order(None, resume=True, permissions={asked.deferred: permission}))

    def go_on(self, prompt: str) -> RunResult:
        return self.run(self.order(prompt, resume=True))

    def results(self) -> list[tuple[str, str]]:
        """Each tool result that the model has by now: the call's id and the text."""
        messages = (
            self.server.requests[-1]["messages"]
            if self.server
            else [entry["message"] for entry in self.recorder.entries if entry["type"] == "user"]
        )
        blocks = [
            block
            for message in messages
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
        ]
        return [(b["tool_use_id"], _text(b["content"])) for b in blocks if b["type"] == "tool_result"]

    def result_of(self, call: str) -> str:
        (text,) = [text for identity, text in self.results() if identity == call]
        return text


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def fake_bench(base: Path) -> Bench:
    return Bench(fake_agent.FakeAgent(script_by_name), base)


@contextmanager
def real_bench(base: Path, sandbox: Sandbox) -> Iterator[Bench]:
    with rehearsal(base) as server:
        yield Bench(ClaudeAgent(sandbox, connection_to(server)), base, server)


@contextmanager
def rehearsal(base: Path) -> Iterator[RehearsalServer]:
    """A rehearsal with the shipped scenarios and those of these tests."""
    folder = base / "scenarios"
    shutil.copytree(SHIPPED, folder)
    shutil.copytree(OWN_SCENARIOS, folder, dirs_exist_ok=True)
    with RehearsalServer(scenarios=folder) as server:
        yield server


def connection_to(server: RehearsalServer) -> Callable[[RunOrder], AbstractContextManager[Connection]]:
    @contextmanager
    def connect(order: RunOrder) -> Iterator[Connection]:
        yield Connection(api_key="rehearsal", base_url=server.url)

    return connect


def question(text: str, *labels: str, many: bool = False) -> dict[str, Any]:
    options = [{"label": label, "description": f"{label}, then."} for label in labels]
    return {"question": text, "header": text[:12], "options": options, "multiSelect": many}


GUARDED = "echo guarded >>"
ANSWERED = fake_script.say("The answer was: {result}")
#: The same stories that the scenarios tell the real one.
SCRIPTS: dict[str, Sequence[fake_script.Act]] = {
    "no-questions": [
        fake_script.Turn("I write a file.", (fake_script.write("notes.txt", "one\nzwei ☃\n"),)),
        fake_script.say("`notes.txt` is written. No question was needed."),
    ],
    "ask-and-end": [
        fake_script.Turn("I ask.", (fake_script.ask(question("Stop here?", "Stop", "Go on")),)),
        fake_script.UnknownMessage(),
        ANSWERED,
    ],
    "ask-command": [
        fake_script.Turn(calls=(fake_script.ask_by_command("Which way, left or right?"),)),
        ANSWERED,
    ],
    "compound-with-work": [
        fake_script.Turn(
            calls=(fake_script.shell('touch before.txt && cat-herder ask "Which way?" && touch after.txt'),)
        ),
        ANSWERED,
    ],
    "ask-by-expansions": [
        fake_script.Turn(calls=(fake_script.shell('cat-herder ask "$(cat q.txt)"; touch after.txt'),)),
        fake_script.Turn(calls=(fake_script.shell("cat-herder ask <<EOF\nWhich way?\nEOF"),)),
        fake_script.Turn(calls=(fake_script.ask_by_command("Which way, left or right?"),)),
        ANSWERED,
    ],
    "ask-without-text": [
        fake_script.Turn(calls=(fake_script.ask(question("", "Left", "Right")),)),
        fake_script.Turn(
            calls=(fake_script.ask(question("Way?", "Left", "Right"), question("Way? ", "Up", "Down")),)
        ),
        fake_script.Turn(calls=(fake_script.ask(question("Which way?", "Left", "Right")),)),
        ANSWERED,
    ],
    "ask-multi": [
        fake_script.Turn(
            calls=(
                fake_script.ask(
                    question("Which database?", "SQLite", "PostgreSQL"),
                    question("Which formats should the export write?", "CSV", "JSON", "PDF", many=True),
                    question("What should the command be called?", "export", "dump"),
                ),
            )
        ),
        ANSWERED,
    ],
    "ask-then-ask": [
        fake_script.Turn(calls=(fake_script.ask(question("Tea or coffee?", "Tea", "Coffee")),)),
        fake_script.Turn(calls=(fake_script.ask(question("With milk?", "Yes", "No")),)),
        ANSWERED,
    ],
    "ask-two-in-one-message": [
        fake_script.Turn(
            calls=(
                fake_script.ask(question("Which colour?", "Red", "Blue")),
                fake_script.ask(question("Which size?", "Small", "Large")),
            )
        ),
        ANSWERED,
    ],
    "ask-beside-tools": [
        fake_script.Turn(
            calls=(
                fake_script.ask(question("Which flavour?", "Vanilla", "Liquorice")),
                fake_script.shell("echo beside the question"),
                fake_script.write("beside.txt", "Written beside the question.\n"),
            )
        ),
        ANSWERED,
    ],
    "ask-in-a-script": [
        fake_script.Turn(
            calls=(fake_script.Call("Bash", {"command": "sh door.sh"}, lambda place: _note(place)),)
        ),
        fake_script.say("I end my turn."),
    ],
    "slow": [
        fake_script.Hang(fake_script.shell("touch slow-started.txt")),
        fake_script.say("That took a while."),
    ],
    "overloaded": [fake_script.Limit()],
    "refused": [fake_script.Fail("API Error: 400 This is refused.")],
    "read-the-answer": [
        fake_script.Turn(calls=(fake_script.ask(question("What is to be done?", "This", "That")),)),
        fake_script.Turn(calls=(fake_script.shell("sha256sum < ../answers/given-1-1.txt"),)),
        fake_script.say("I have read it."),
    ],
    "two-approvals": [
        fake_script.Turn(
            calls=(fake_script.shell(f"{GUARDED} first.txt"), fake_script.shell(f"{GUARDED} second.txt"))
        ),
        fake_script.Turn(calls=(fake_script.shell(f"{GUARDED} first.txt"),)),
        fake_script.Turn(calls=(fake_script.shell(f"{GUARDED} second.txt"),)),
        fake_script.say("Both are made."),
    ],
    "approval-beside-work": [
        fake_script.Turn(
            calls=(
                fake_script.shell("touch before.txt"),
                fake_script.shell(f"{GUARDED} guarded.txt"),
                fake_script.shell("touch after.txt"),
            )
        ),
        fake_script.say("I am done."),
    ],
    "approval-beside-question": [
        fake_script.Turn(
            calls=(
                fake_script.ask(question("Which colour?", "Red", "Blue")),
                fake_script.shell(f"{GUARDED} guarded.txt"),
            )
        ),
        fake_script.Turn(calls=(fake_script.shell(f"{GUARDED} guarded.txt"),)),
        fake_script.say("I am done."),
    ],
    "approval-fails": [
        fake_script.Turn(calls=(fake_script.shell(f"{GUARDED} guarded.txt; exit 3"),)),
        fake_script.say("I am done."),
    ],
    "plan-too-early": [
        fake_script.Turn(calls=(fake_script.write("early.txt", "early\n"),)),
        fake_script.Turn(calls=(fake_script.plan("# Plan\n"),)),
        fake_script.Turn(calls=(fake_script.write("late.txt", "late\n"),)),
        fake_script.Turn(calls=(fake_script.shell("echo late > late-too.txt"),)),
        fake_script.say("I am done."),
    ],
    "plan-first": [
        fake_script.Turn(calls=(fake_script.plan("# Plan\n"),)),
        fake_script.Turn(calls=(fake_script.plan("# Plan, revised\n"),)),
        fake_script.Turn(calls=(fake_script.write("GREETING.md", "Hello!\n"),)),
        fake_script.say("`GREETING.md` is written, as planned."),
    ],
    "leave-something-running": [fake_script.say("I leave nothing.")],
}


def _note(workspace: Path) -> str:
    folder = workspace.parent / "home" / "asked"
    (folder / f"{uuid4()}.json").write_text('{"question": "Which door?"}')
    (workspace / "after-the-script.txt").touch()
    return "noted"


def script_by_name(prompt: str) -> Sequence[fake_script.Act]:
    found = re.search(r"^rehearsal: (.+)$", prompt, re.MULTILINE)
    assert found, prompt
    return SCRIPTS[found[1]]

"""H9 and issue after issue: what the model is told when a step goes on, at the Messages API."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.agent.port import AgentEvent
from tasks_app.core.phases import Phase
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import StopReason, never
from tasks_app.git import committed_text
from tasks_app.models import Outcome, SessionEntry, Task, paths
from tasks_app.prompting.feedback import after_rehearsal_feedback, interruption_feedback, usage_limit_feedback
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.services.tasks import resume_task
from tests.people import acting
from tests.runner import ONE_STEP, Runner, file_in, runs

pytestmark = [
    pytest.mark.bubblewrap,
    pytest.mark.django_db(transaction=True),
    pytest.mark.once(on="sqlite"),
]

CHECKED = """\
pipelines:
  default:
    - {name: do, command: self, check: {type: shell, command: "echo it is $(echo missing); false"}, retry: 1}
"""


def after_a_failed_check(runner: Runner, task: Task) -> None:
    runner.advance(task)


def after_a_limit(runner: Runner, task: Task) -> None:
    runner.advance(task)
    resume_task(task, by=acting(runner.user), notify=False)
    runner.advance(task)


def after_a_stop(runner: Runner, task: Task) -> None:
    started = file_in(task, "slow-started.txt")
    runner.stop_signal = lambda: StopReason.SHUTDOWN if started.exists() else None
    runner.advance(task)
    runner.stop_signal = never
    runner.advance(task)


@dataclass(frozen=True)
class Case:
    scenario: str
    config: str
    happen: Callable[[Runner, Task], None]
    told: str
    done: str


CASES = {
    "failed check": Case("no-questions", CHECKED, after_a_failed_check, "it is missing", "notes.txt"),
    "usage limit": Case(
        "limit-midway", ONE_STEP, after_a_limit, usage_limit_feedback(reset_at=None), "notes.txt"
    ),
    "stopped worker": Case("slow-once", ONE_STEP, after_a_stop, interruption_feedback(), "slow-started.txt"),
}


def last_conversation(server: RehearsalServer) -> list[dict[str, Any]]:
    last = [request for request in server.requests if request.get("tools")][-1]
    messages: list[dict[str, Any]] = last["messages"]
    return messages


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(str(block.get("text", "")) for block in content)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_session_resumes_with_the_reason(real: Runner, server: RehearsalServer, case: Case) -> None:
    """One conversation: what was done before, then why it goes on."""
    task = real.task(text=f"# Paint it\n\nrehearsal: {case.scenario}\n", config=case.config)
    case.happen(real, task)
    first, second = runs(task)[:2]
    assert second.session_id == first.session_id
    conversation = last_conversation(server)
    told = [
        number for number, message in enumerate(conversation) if case.told.splitlines()[0] in text_of(message)
    ]
    did = [number for number, message in enumerate(conversation) if case.done in str(message["content"])]
    assert told and did and min(did) < told[0]
    assert "PREVIOUS ACTIONS LOG" not in str(conversation)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_replay_is_told_what_was_done_and_the_reason(
    real: Runner, server: RehearsalServer, case: Case
) -> None:
    """H9: the original prompt, the actions, the reason, in this order, in a new session."""
    text = f"---\nresume: replay\n---\n# Paint it\n\nrehearsal: {case.scenario}\n"
    task = real.task(text=text, config=case.config)
    case.happen(real, task)
    first, second = runs(task)[:2]
    assert second.session_id != first.session_id
    prompt = text_of(last_conversation(server)[0])
    original, rest = prompt.split("--- PREVIOUS ACTIONS LOG ---")
    actions, feedback = rest.split("--- FEEDBACK ---")
    assert f"rehearsal: {case.scenario}" in original
    assert case.done in actions
    assert case.told.splitlines()[0] in feedback


@pytest.mark.parametrize("first", ["script", "model"])
def test_what_a_script_said_is_never_taken_for_the_model_s_own_words(
    real: Runner, server: RehearsalServer, settings: Any, first: str
) -> None:
    """Once there are keys, or none any more, a new session begins; what was done and answered is told."""
    keys = {"script": None, "model": "sk-real"}
    players = [first, "model" if first == "script" else "script"]
    task = real.task(text="# Paint it\n\nrehearsal: ask-and-end\n")
    for player in players:
        if task.questions.exists():
            real.answer_all(task, "Stop")
        update = {"anthropic_api_key": keys[player], "claude_oauth_token": None}
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=update)
        real.advance(task)
    one, two = runs(task)[:2]
    assert (two.session_id == one.session_id, two.resumed) == (False, False)
    assert [one.rehearsed, two.rehearsed] == [player == "script" for player in players]
    conversation = last_conversation(server)
    assert "Stop" in text_of(conversation[0]).split("--- FEEDBACK ---")[1]
    assert (after_rehearsal_feedback() in text_of(conversation[0])) == (first == "script")
    notes = [event.payload["text"] for event in two.events.filter(kind="note")]
    assert any("A new session begins" in note and "script" in note for note in notes)


@pytest.fixture
def second_run_dies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The second run's program is killed when its output shows an event of this kind, before anything of
    that run is in its session."""
    kinds: list[str] = []
    record, append = RunRecorder.record, RunRecorder.append_transcript

    def recorded(self: RunRecorder, events: Sequence[AgentEvent]) -> None:
        record(self, events)
        if self._run.number == 2 and any(event.kind in kinds for event in events):
            for pid in marked_processes(paths.workspace(self._run.step.task).path):
                with suppress(ProcessLookupError):  # it ended with the one before
                    os.kill(pid, signal.SIGKILL)

    def appended(self: RunRecorder, key: Mapping[str, str], entries: list[dict[str, Any]]) -> None:
        if self._run.number != 2:
            append(self, key, entries)

    monkeypatch.setattr(RunRecorder, "record", recorded)
    monkeypatch.setattr(RunRecorder, "append_transcript", appended)
    return kinds


def ask_that_did_not_halt(task: Task) -> None:
    """The session as if the program had died just after it asked."""
    entries = SessionEntry.objects.order_by("pk")
    asked = entries.filter(entry__type="assistant").last()
    assert asked
    entries.filter(pk__gt=asked.pk).delete()


@pytest.mark.parametrize("kind", ["tool_result", "text"], ids=["as its result", "in a prompt"])
def test_an_answer_that_is_not_in_the_session_is_handed_over_again(
    real: Runner, second_run_dies: list[str], kind: str
) -> None:
    """H8: however far the program had come with it before it was killed."""
    task = real.task(text="# Paint it\n\nrehearsal: crash-story\n")
    real.advance(task)
    if kind == "text":
        ask_that_did_not_halt(task)
    real.answer_all(task, "Green")
    second_run_dies += [kind, "tool_use"]
    real.advance(task)
    assert task.phase == Phase.DONE, task.failure
    assert [run.outcome for run in runs(task)] == [Outcome.ASKED, Outcome.CRASHED, Outcome.FINISHED]
    place = paths.repository(task.project)
    assert committed_text(place, commit=task.head_commit, path="after.txt") == "Green\n"
    assert task.questions.get().delivered_at is not None

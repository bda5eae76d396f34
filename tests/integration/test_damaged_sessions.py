"""H9: what is damaged or refused is not resumed; a new one is told what was done, and the answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from django.db import connection

from tasks_app.agent.transcripts import require_intact
from tasks_app.core.errors import TranscriptDamaged
from tasks_app.core.phases import Phase
from tasks_app.models import Event, EventKind, Outcome, SessionEntry, Task, paths
from tasks_app.rehearsal.server import RehearsalServer
from tests.runner import Runner, runs

pytestmark = [
    pytest.mark.bubblewrap,
    pytest.mark.django_db(transaction=True),
    pytest.mark.once(on="sqlite"),
]


def _no_object() -> None:
    SessionEntry.objects.filter(entry__type="user").update(entry="garbage")


def _no_json() -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")  # a damaged disk asks none
        cursor.execute('UPDATE tasks_app_sessionentry SET entry = \'{"type": "us\'')
        cursor.execute("PRAGMA ignore_check_constraints = OFF")


def _no_message() -> None:
    for row in SessionEntry.objects.filter(entry__type="assistant"):
        row.entry["message"] = None
        row.save()


def _no_beginning() -> None:
    first = SessionEntry.objects.filter(entry__type="user").order_by("pk").first()
    assert first
    first.delete()


def _nothing() -> None:
    SessionEntry.objects.all().delete()


def _no_conversation() -> None:
    """What only the program itself refuses: each entry is whole, and no message is among them."""
    SessionEntry.objects.filter(entry__has_key="uuid").delete()


DAMAGES = {
    "no object": (_no_object, "is not an object"),
    "no JSON": (_no_json, "is not an object"),
    "no message": (_no_message, "holds no message"),
    "no beginning": (_no_beginning, "follows one that is missing"),
    "nothing": (_nothing, "nothing of it is stored"),
    "no conversation": (_no_conversation, "No conversation found"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_an_answer_reaches_a_new_session_when_the_old_one_is_damaged(
    real: Runner, server: RehearsalServer, damage: Callable[[], None], reason: str
) -> None:
    task = real.task(text="# Paint it\n\nrehearsal: ask-and-end\n")
    assert real.advance(task).phase == Phase.WAITING_FOR_INPUT
    require_intact(list(SessionEntry.objects.order_by("pk").values_list("entry", flat=True)))
    damage()
    shutil.rmtree(paths.home(task) / ".claude")
    real.answer_all(task, "Go on, but gently")
    real.advance(task)
    first, *_, last = runs(task)
    assert last.session_id != first.session_id and last.outcome != Outcome.FAILED
    prompt = next(
        text
        for request in reversed(server.requests)
        if request.get("tools") and "PREVIOUS ACTIONS LOG" in (text := str(request["messages"][0]["content"]))
    )
    assert "Go on, but gently" in prompt.split("--- FEEDBACK ---")[1]
    notes = _notes(task)
    assert len(notes) == 1 and reason in notes[0]
    assert "A new session begins with what was done so far." in notes[0]


def _notes(task: Task) -> list[str]:
    events = Event.objects.filter(run__step__task=task, kind=EventKind.NOTE).order_by("pk")
    return [event.payload["text"] for event in events if "cannot be resumed" in event.payload["text"]]


def test_a_refused_session_costs_no_attempt(real: Runner) -> None:
    """It is no fault of the agent's: with no retry left the step still goes on."""
    task = real.task(text="# Paint it\n\nrehearsal: ask-and-end\n")
    real.advance(task)
    _no_conversation()
    shutil.rmtree(paths.home(task) / ".claude")
    real.answer_all(task, "Go on")
    assert real.advance(task).phase != Phase.FAILED
    assert [run.outcome for run in runs(task)][:2] == [Outcome.ASKED, Outcome.LOST]


def test_what_is_sound_is_taken_as_it_is() -> None:
    message = {"role": "user", "content": "hello"}
    chain = [
        {"type": "queue-operation"},
        {"type": "user", "uuid": "a", "parentUuid": None, "message": message},
        {"type": "attachment", "uuid": "b", "parentUuid": "a"},
        {"type": "assistant", "uuid": "c", "parentUuid": "b", "message": {"content": []}},
    ]
    require_intact(chain)
    for broken in (chain[2:], [*chain, "text"], [*chain, {"uuid": "d"}]):
        with pytest.raises(TranscriptDamaged):
            require_intact(broken)

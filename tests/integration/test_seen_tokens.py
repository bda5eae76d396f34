"""API tokens that an agent sees or writes are revoked, and their owners hear of it (A2)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from tasks_app.agent.port import AgentEvent
from tasks_app.core.phases import Phase
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import never
from tasks_app.models import (
    Action,
    ApiToken,
    AuditEntry,
    Delivery,
    Event,
    EventKind,
    EventType,
    Notice,
    Run,
    Scope,
    User,
)
from tasks_app.notifications.delivery import deliver
from tasks_app.services.accounts import make_token
from tests.browser import signed_in
from tests.factories import UserFactory
from tests.fake_script import Act, Call, Turn, say, shell, write
from tests.integration.test_reviews import done, on_line, reply, request_changes
from tests.people import acting
from tests.runner import Runner, step

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return UserFactory.create(email="owner@example.org")


@pytest.fixture
def secret(owner: User) -> str:
    return make_token("laptop", list(Scope), by=acting(owner)).secret


def is_accepted(secret: str) -> bool:
    headers = {"Authorization": f"Bearer {secret}"}
    return Client().get("/api/v1/tasks", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "way",
    [
        lambda secret: Turn(calls=(write("deploy.sh", f"curl -H 'Authorization: Bearer {secret}'\n"),)),
        lambda secret: Turn(f"I found {secret} in the environment."),
        lambda secret: Turn(calls=(shell("printf cath_ > .env; cut -c 1- kept >> .env"),)),
    ],
    ids=["in a call", "in the agent's words", "only in a file"],
)
def test_a2_a_token_that_an_agent_saw_is_revoked_and_its_owner_told(
    runner: Runner, owner: User, secret: str, way: Any, settings: Any
) -> None:
    settings.SENDS_EMAIL = True
    assert is_accepted(secret)
    halves: list[Act] = [way(secret), say("Done.")]
    project = runner.project(kept=f"{secret.removeprefix('cath_')}\n")
    task = runner.advance(runner.task(halves, project=project))
    assert task.phase == Phase.DONE
    assert not is_accepted(secret)
    notice = Notice.objects.get(user=owner, event_type=EventType.TOKEN_SEEN)
    assert notice.task == task and notice.read_at is None
    [entry] = AuditEntry.objects.filter(action=Action.TOKEN_REVOKED)
    assert (entry.subject, entry.task_id, entry.actor_id) == ("laptop", task.pk, None)
    notes = [
        event.payload["text"]
        for event in Event.objects.filter(run__step__task=task, kind=EventKind.NOTE)
        if "“laptop”" in event.payload["text"]
    ]
    assert len(notes) == 1

    assert deliver() == 1
    [sent] = mail.outbox
    assert sent.to == ["owner@example.org"] and "laptop" in sent.subject and "/me/tokens/" in sent.body
    assert Delivery.objects.get(notice=notice).sent_at
    client = signed_in(owner)
    page = client.get("/notices/").text
    assert "“laptop” was revoked" in page and task.title not in page + sent.body, "the project is not theirs"


def test_a2_what_only_looks_like_a_token_changes_nothing(runner: Runner, secret: str) -> None:
    other = f"cath_{'x' * 43}"
    task = runner.advance(runner.task([Turn(calls=(write("a.txt", other),)), say(other)]))
    assert task.phase == Phase.DONE and is_accepted(secret)
    assert (
        ApiToken.objects.get().revoked_at is None
        and not AuditEntry.objects.filter(action=Action.TOKEN_REVOKED).exists()
    )


def test_a2_a_token_that_an_agent_left_in_a_reply_is_revoked(runner: Runner, secret: str) -> None:
    """The command that made the reply did not show it, such as `cat-herder reply 1 "$(cat kept)"`."""
    made = reply(1, f"I use {secret}.")
    hidden = Call("Bash", {"command": 'cat-herder reply 1 "$(cat kept)"'}, made.work)
    task = done(runner, Turn(calls=(hidden,)), say("Replied."))
    request_changes(task, runner.user, on_line(1))
    assert runner.advance(task).phase == Phase.DONE
    assert [comment.text for comment in task.threads.get().comments.all()] == [
        "Why this?",
        f"I use {secret}.",
    ]
    assert not is_accepted(secret)


def test_a2_a_token_in_the_transcript_is_revoked_before_that_is_stored(runner: Runner, secret: str) -> None:
    """The worker may die before it has read the same as an event, and the session goes on with it."""
    task = runner.task([])
    lease = Lease.claim(task.pk, owner="w")
    assert lease is not None
    run = Run.objects.create(step=step(task), number=1, reason="first", session_id=uuid4())
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=60)
    recorder.append_transcript({"project_key": "p", "session_id": "s"}, [{"message": f"It is {secret}"}])
    assert not is_accepted(secret)
    recorder.record([AgentEvent("text", {"text": f"It is {secret}"}, timezone.now())])
    notes = Event.objects.filter(run=run, kind=EventKind.NOTE)
    assert len([note for note in notes if "“laptop”" in note.payload["text"]]) == 1

"""Logs of tasks that ended long ago are removed if a setting says so, and nothing else is (F)."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.management.base import CommandError
from django.db import connection, models
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.logs import removal
from tasks_app.engine.logs.compaction import compact_due_runs, compact_runs
from tasks_app.engine.logs.removal import remove_due_logs, remove_logs
from tasks_app.history.audit import record
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.history.events.logs import LogKind, follow_log, render_log
from tasks_app.models import (
    Action,
    DecisionEvent,
    Event,
    EventBlock,
    EventKind,
    Outcome,
    Question,
    Run,
    Scope,
    SessionEntry,
    Task,
)
from tasks_app.services.tasks import resume_task
from tests.api import Script
from tests.browser import signed_in
from tests.factories import DecisionFactory, QuestionFactory, RunFactory, TaskFactory, UserFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Fail, say
from tests.integration.conftest import Manage
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def ended_task(*, days: float, events: int = 20, compacted: bool = False) -> Task:
    task: Task = TaskFactory.create(phase=Phase.DONE)
    run = RunFactory.create(step=task.steps.first())
    said = [NewEvent(EventKind.TEXT, {"text": f"line {n}."}, raw={"n": n}) for n in range(events)]
    append(run, said, seq=0)
    key = {"project_key": "p", "session_id": str(run.session_id)}
    SessionEntry.objects.append(key, [{"said": "line 0."}, {"said": "line 1."}])
    ended = timezone.now() - days * DAY
    Run.objects.filter(pk=run.pk).update(ended_at=ended, outcome=Outcome.FINISHED)
    Task.objects.filter(pk=task.pk).update(ended_at=ended)
    if compacted:
        while compact_runs(older_than=DAY):
            pass
    task.refresh_from_db()
    return task


def keep(settings: Any, days: int) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"keep_logs_days": days})


def counts(*, without: set[type[models.Model]]) -> dict[str, int]:
    found = apps.get_app_config("tasks_app").get_models()
    return {one.__name__: one._default_manager.count() for one in found if one not in without}


@pytest.mark.parametrize("compacted", [False, True], ids=["rows", "blocks"])
def test_the_log_and_transcripts_of_an_old_task_go(compacted: bool, settings: Any) -> None:
    keep(settings, 30)
    old, recent = ended_task(days=31, compacted=compacted), ended_task(days=29, compacted=compacted)

    remove_due_logs()

    left = [*Event.objects.values_list("run__step__task"), *EventBlock.objects.values_list("run__step__task")]
    assert set(left) == {(recent.pk,)}
    sessions = Run.objects.filter(step__task=recent).values_list("session_id", flat=True)
    assert set(SessionEntry.objects.values_list("session_id", flat=True)) == {str(one) for one in sessions}
    old.refresh_from_db()
    recent.refresh_from_db()
    assert old.log_removed_at is not None and recent.log_removed_at is None


def test_by_default_logs_are_kept_for_ever() -> None:
    ended_task(days=4_000)
    assert remove_due_logs() == 0 and Event.objects.count() == 20


def test_a_worker_host_neither_compacts_nor_removes_logs(settings: Any) -> None:
    """The settings are the portal's; a host may have others, or none."""
    values = {"keep_logs_days": 30, "worker_token": "cathw_build-2." + 43 * "A"}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    ended_task(days=31)
    assert remove_due_logs() == compact_due_runs() == 0
    assert Event.objects.count() == 20


def test_questions_answers_decisions_and_the_audit_log_stay(settings: Any) -> None:
    keep(settings, 30)
    task = ended_task(days=31, compacted=True)
    user = UserFactory.create()
    run = Run.objects.get(step__task=task)
    question = QuestionFactory.create(
        task=task, run=run, state="answered", answered_by=user, answered_at=timezone.now()
    )
    decision = DecisionFactory.create(project=task.project, question=question)
    DecisionEvent.objects.create(decision=decision, kind="decided", user=user, task=task)
    record(Action.ANSWERED, by=user, task=task, question=1)
    gone: set[type[models.Model]] = {Event, EventBlock, SessionEntry}
    before = counts(without=gone)

    remove_due_logs()

    assert counts(without=gone) == before and not any(one._default_manager.exists() for one in gone)
    assert Question.objects.get().answered_by == user


def test_the_pages_and_logs_of_the_task_say_that_its_log_was_removed_and_when(settings: Any) -> None:
    keep(settings, 30)
    task = ended_task(days=31)
    remove_due_logs()
    task.refresh_from_db()
    assert task.log_removed_at is not None
    admin = UserFactory.create(is_superuser=True)
    browser = signed_in(admin)
    page = browser.get(reverse("task_log", args=[task.pk])).text
    assert "The log up to" in page and "was removed, because it was old." in page
    assert task.log_removed_at.isoformat()[:16] in page and "line 1." not in page
    step = task.steps.first()
    assert step is not None
    (first, *_) = "".join(render_log(step, LogKind.OUTPUT)).splitlines()
    assert first.startswith("The log up to 2") and first.endswith("was removed, because it was old.")
    assert "was removed" in next(follow_log(task, LogKind.REASONING, pause=lambda: None))
    assert not list(render_log(step, LogKind.RAW)), "raw logs are JSON"
    shown = Script(admin, Scope.READ).get(f"/tasks/{task.pk}").json()
    assert shown["log_removed_at"][:16] == task.log_removed_at.isoformat()[:16]


def test_a_task_that_was_resumed_has_a_log_again_which_is_removed_in_its_turn(settings: Any) -> None:
    keep(settings, 30)
    task = ended_task(days=100)
    remove_due_logs()
    Task.objects.filter(pk=task.pk).update(log_removed_at=timezone.now() - 60 * DAY)
    again = RunFactory.create(step=task.steps.first(), number=2, reason="retry")
    append(again, [NewEvent(EventKind.TEXT, {"text": "Once more."})], seq=0)

    Task.objects.filter(pk=task.pk).update(ended_at=timezone.now() - 29 * DAY)
    remove_due_logs()
    assert Event.objects.count() == 1
    Task.objects.filter(pk=task.pk).update(ended_at=timezone.now() - 31 * DAY)
    remove_due_logs()
    assert not Event.objects.exists()


def test_the_log_of_a_task_that_goes_on_stays(settings: Any) -> None:
    """It was resumed between the look and the removal."""
    keep(settings, 30)
    task = ended_task(days=31)
    Task.objects.filter(pk=task.pk).update(phase=Phase.PENDING, ended_at=None)
    assert not removal._remove_some(task, timezone.now() - 30 * DAY)
    assert Event.objects.count() == 20


@pytest.mark.parametrize("removed", [False, True], ids=["compacted", "removed"])
def test_a_task_can_be_resumed_whose_log_was(removed: bool, runner: Runner, settings: Any) -> None:
    """With its log in blocks it goes on in its session; without one it begins a new session."""
    task = runner.advance(runner.task([say("I begin."), Fail("No luck.")]))
    assert task.phase == Phase.FAILED
    earlier = timezone.now() - 31 * DAY
    Run.objects.update(ended_at=earlier)
    Task.objects.filter(pk=task.pk).update(ended_at=earlier)
    assert compact_runs(older_than=DAY) and not Event.objects.exists()
    if removed:
        assert len(list(remove_logs(older_than=30 * DAY))) == 1 and not EventBlock.objects.exists()

    runner.agent = FakeAgent(lambda prompt: [say("I begin."), say("Failed."), say("Done now.")])
    task.refresh_from_db()
    resume_task(task, by=acting(runner.user))
    task = runner.advance(task)

    assert task.phase == Phase.DONE
    first, second = Run.objects.order_by("number")
    assert second.resumed is not removed
    assert (first.session_id == second.session_id) is not removed
    assert "Done now." in "".join(render_log(task.steps.get(), LogKind.OUTPUT))
    assert EventBlock.objects.filter(run=first).exists() is not removed


def test_a_long_log_goes_in_parts_and_is_noted_from_the_first_on(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(settings, 30)
    task = ended_task(days=31, events=35)
    monkeypatch.setattr(removal, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(removal, "AT_ONCE", 2)
    left = []
    while remove_due_logs():
        task.refresh_from_db()
        assert task.log_removed_at and task.ended_at
        left.append((Event.objects.count(), task.log_removed_at > task.ended_at))
    assert left == [(15, False), (0, True)]


@pytest.mark.django_db(transaction=True)
def test_others_may_write_while_the_logs_of_many_tasks_go() -> None:
    """On SQLite, a query that is not read to its end keeps an old state of the database."""
    first = ended_task(days=100, events=1)
    TaskFactory.create_batch(3, phase=Phase.DONE, ended_at=first.ended_at)
    rows = list(Task.objects.exclude(pk=first.pk))
    copies = []
    for number in range(2_000):
        copy = Task(**{one.attname: getattr(rows[0], one.attname) for one in Task._meta.concrete_fields})
        copy.pk, copy.slug, copy.branch = None, f"copy-{number}", f"copy-{number}"
        copies.append(copy)
    Task.objects.bulk_create(copies)
    removing = remove_logs(older_than=30 * DAY)
    next(removing)
    elsewhere = threading.Thread(target=_write_and_close)
    elsewhere.start()
    elsewhere.join()
    assert len(list(removing)) == 2_003


def _write_and_close() -> None:
    try:
        UserFactory.create()
    finally:
        connection.close()


def test_a_sweep_that_finds_nothing_asks_once(settings: Any) -> None:
    keep(settings, 30)
    ended_task(days=31)
    remove_due_logs()
    with CaptureQueriesContext(connection) as captured:
        assert remove_due_logs() == 0
    assert len(captured) == 1
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {captured[0]['sql']}")
            assert "task_has_log" in str(cursor.fetchall())


def test_the_command_says_what_it_would_free_and_removes_nothing(manage: Manage) -> None:
    old = ended_task(days=31, compacted=True)
    ended_task(days=3)
    code, out, _ = manage("clean_up", "logs", "--older-than", "30", "--dry-run")
    assert code == 0
    assert f"would go log of task {old.pk} “{old}”: 20 events, 2 lines of transcripts" in out
    assert out.splitlines()[-1].endswith("MB would be freed.")
    assert EventBlock.objects.exists() and SessionEntry.objects.count() == 4


def test_the_command_removes_old_logs_and_prints_what_it_freed(manage: Manage) -> None:
    old = ended_task(days=31)
    new = ended_task(days=3)
    code, out, _ = manage("clean_up", "logs", "--older-than", "30", "--json")
    facts = json.loads(out)
    assert code == 0 and (facts["task"], facts["events"], facts["lines"]) == (old.pk, 20, 2)
    assert facts["freed"] > 400
    assert set(Event.objects.values_list("run__step__task", flat=True)) == {new.pk}


def test_the_command_needs_to_know_how_old(manage: Manage, settings: Any) -> None:
    with pytest.raises(CommandError, match="--older-than DAYS, or set CATHERDER_KEEP_LOGS_DAYS") as refused:
        manage("clean_up", "logs")
    assert refused.value.returncode == 2
    with pytest.raises(CommandError, match="from 0 to 36500"):
        manage("clean_up", "logs", "--older-than=-1")
    keep(settings, 30)
    ended_task(days=31)
    code, out, _ = manage("clean_up", "logs")
    assert code == 0 and out.count("removed  log") == 1


def test_both_ways_remove_the_same() -> None:
    ended_task(days=31)
    ended_task(days=31, compacted=True)
    found = list(remove_logs(older_than=30 * DAY))
    assert [one.events for one in found] == [20, 20]
    assert not list(remove_logs(older_than=30 * DAY))

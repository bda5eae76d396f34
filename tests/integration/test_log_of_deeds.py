"""The log tells who cancelled, resumed and retried a task, for readers who were not there."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.history.deeds import FINISHED_EARLY
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.history.events.logs import LogKind, follow_log, render_log
from tasks_app.history.transitions import move
from tasks_app.models import EventKind, Run, Step, Task, User
from tasks_app.services.bulk import retry_from
from tasks_app.services.tasks import cancel_task, change_threshold, resume_task
from tests.browser import signed_in
from tests.factories import RunFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def mia() -> User:
    return UserFactory.create(first_name="Mia", is_superuser=True)


def running(task: Task) -> Task:
    Task.objects.filter(pk=task.pk).update(phase=Phase.RUNNING)
    task.refresh_from_db()
    return task


def say(run: Run, text: str) -> None:
    append(run, [NewEvent(EventKind.TEXT, {"text": text})], seq=run.next_seq())


def run_of(step: Step, text: str) -> Run:
    run = RunFactory.create(step=step, number=step.runs.count() + 1)
    say(run, text)
    return run


def is_in_order(text: str, *parts: str) -> bool:
    places = [text.index(part) for part in parts]
    return places == sorted(places) and all(text.count(part) == 1 for part in parts)


def told(mia: User) -> tuple[Task, list[str]]:
    """Return a task with a history, and what its log tells in this order."""
    task = running(TaskFactory.create())
    step = task.steps.get(position=1)
    Step.objects.filter(pk=step.pk).update(base_commit="a" * 40)
    run_of(step, "first words")
    cancel_task(task, by=acting(mia))
    resume_task(task, by=acting(mia))
    run_of(step, "second words")
    cancel_task(running(task), by=acting(mia))
    retry_from(task, step, by=acting(mia), put_back=True)
    run_of(step, "third words")
    move(running(task), Phase.DONE, reason=FINISHED_EARLY)
    retry_from(task, step, by=acting(mia))
    return task, [
        "first words", "Mia resumed the task", "second words",
        f"Mia retried the task from step “{step}”, with the files put back", "third words",
        f"The task was {FINISHED_EARLY}",
        f"Mia retried the task from step “{step}”, with the files kept",
    ]  # fmt: skip


def test_the_page_tells_who_did_what_at_its_time(mia: User) -> None:
    task, parts = told(mia)
    page = signed_in(mia).get(reverse("task_log", args=[task.pk])).text
    assert is_in_order(page, *parts)
    assert page.count("Mia cancelled the task") == 2


@pytest.mark.parametrize("follows", [False, True])
def test_the_log_as_text_tells_the_same(mia: User, follows: bool) -> None:
    task, parts = told(mia)
    if follows:
        Task.objects.filter(pk=task.pk).update(phase=Phase.DONE)
        log = "".join(follow_log(task, LogKind.OUTPUT, pause=lambda: None))
    else:
        log = "".join(render_log(task.steps.get(position=1), LogKind.OUTPUT))
    assert is_in_order(log, *parts)
    assert log.count("[TASK] Mia cancelled the task") == 2
    assert "[TASK]" not in "".join(render_log(task.steps.get(position=1), LogKind.RAW))


def test_a_task_that_never_ran_tells_who_cancelled_it(mia: User) -> None:
    task = running(TaskFactory.create())
    cancel_task(task, by=acting(mia))
    assert "Mia cancelled the task" in signed_in(mia).get(reverse("task", args=[task.pk])).text
    logs = "".join(text for step in task.steps.all() for text in render_log(step, LogKind.OUTPUT))
    assert logs.count("Mia cancelled the task") == 1


def test_a_new_threshold_stands_where_it_came(mia: User) -> None:
    """What agents say before and after it, such as that nobody can be asked, contradicted each other."""
    task = TaskFactory.create(threshold=0)
    run_of(task.steps.get(position=1), "Nobody can be asked.")
    change_threshold(task, 3, by=acting(mia))
    run_of(task.steps.get(position=1), "I ask.")
    page = signed_in(mia).get(reverse("task_log", args=[task.pk])).text
    assert is_in_order(page, "Nobody can be asked.", "changed the threshold from 0 to 3", "I ask.")


def test_the_head_of_a_run_says_the_threshold_that_it_had(mia: User) -> None:
    task = TaskFactory.create(threshold=4)
    run = run_of(task.steps.get(position=1), "I ask.")
    Run.objects.filter(pk=run.pk).update(threshold=4)
    change_threshold(task, 0, by=acting(mia))
    task.refresh_from_db()
    assert re.search(r"Threshold: +4\n", "".join(render_log(run.step, LogKind.OUTPUT)))

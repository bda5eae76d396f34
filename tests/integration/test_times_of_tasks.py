"""One task has the same times wherever they stand, and its parts sum up to the whole (W2, W3)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from tasks_app.core.phases import Phase
from tasks_app.models import Outcome, Step, Task, Transition
from tests.browser import signed_in
from tests.factories import QuestionFactory, RunFactory, TaskFactory, UserFactory
from tests.markup import tidy

pytestmark = pytest.mark.django_db

#: Seconds since the task began, with fractions, as clocks have them.
PLAN, ASKED, RESUMED, PLANNED, IMPLEMENT, NOW = 4.4, 60.9, 130.3, 190.7, 192.2, 300.1
UNITS = {"s": 1, "min": 60, "h": 3600}


@pytest.fixture
def client() -> Client:
    return signed_in(UserFactory.create(is_superuser=True))


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """When the task began. Each look at the clock comes a little later, as in a request."""
    began, looks = timezone.now() - timedelta(seconds=NOW), iter(range(1_000_000))
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(microseconds=50 * next(looks)))
    return began


def seconds_in(words: str) -> int:
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+) (s|min|h)\b", words))


def move(thing: Task | Step, began: datetime, **moves: float) -> None:
    task, step = (thing, None) if isinstance(thing, Task) else (thing.task, thing)
    for target, seconds in moves.items():
        row = Transition.objects.create(task=task, step=step, source="pending", target=target.rstrip("_"))
        Transition.objects.filter(pk=row.pk).update(at=began + timedelta(seconds=seconds))


def with_one_answer(began: datetime, phase: Phase) -> Task:
    """A task whose first step asked once, and whose second step is in this phase."""
    at = {second: began + timedelta(seconds=second) for second in (PLAN, ASKED, RESUMED, PLANNED, IMPLEMENT)}
    task = TaskFactory.create(
        phase=phase, started_at=began, paused_seconds=RESUMED - ASKED, steps=("plan", "implement")
    )
    plan, implement = task.steps.all()
    Step.objects.filter(pk=plan.pk).update(phase=Phase.DONE, started_at=at[PLAN], ended_at=at[PLANNED])
    Step.objects.filter(pk=implement.pk).update(phase=phase, started_at=at[IMPLEMENT])
    move(task, began, running=0, waiting_for_input=ASKED, running_=RESUMED)
    move(plan, began, running=PLAN, waiting_for_input=ASKED, running_=RESUMED, done=PLANNED)
    move(implement, began, running=IMPLEMENT)
    return task


def times_of(page: str) -> list[str]:
    """The moments from which the page counts on."""
    return re.findall(r'data-since="([^"]+)"', page)


def timeline(client: Client, task: Task) -> list[int]:
    page = client.get(f"/tasks/{task.pk}/timeline/").text
    return [
        seconds_in(strip_tags(one)) for one in re.findall(r'class="step-time".*?</span>(?=\s*<)', page, re.S)
    ]


def test_working_time_is_the_same_in_row_head_and_details(client: Client, began: datetime) -> None:
    task = with_one_answer(began, Phase.RUNNING)
    Task.objects.filter(pk=task.pk).update(
        lease_owner="w", lease_expires=timezone.now() + timedelta(minutes=1)
    )
    row = client.get(f"/tasks/?q={task.title}").text.split('class="row-when"')[1].split("</span>")[0]
    head = client.get(f"/tasks/{task.pk}/header/").text.split('class="task-spent"')[1].split("</span>")[0]
    details = client.get(f"/tasks/{task.pk}/details/").text.split("<dt>Time</dt>")[1].split("working")[0]
    assert len(set(times_of(row) + times_of(head) + times_of(details))) == 1
    assert len({seconds_in(strip_tags(one.partition(">")[2])) for one in (row, head, details)}) == 1


def test_waiting_time_is_the_same_in_details_and_at_the_run(client: Client, began: datetime) -> None:
    task = with_one_answer(began, Phase.WAITING_FOR_INPUT)
    Task.objects.filter(pk=task.pk).update(paused_seconds=0.0)
    implement = task.steps.get(position=2)
    Transition.objects.all().delete()
    move(task, began, waiting_for_input=IMPLEMENT)
    move(implement, began, waiting_for_input=IMPLEMENT)
    run = RunFactory.create(
        step=implement, outcome=Outcome.ASKED, ended_at=began + timedelta(seconds=IMPLEMENT)
    )
    type(run).objects.filter(pk=run.pk).update(started_at=began + timedelta(seconds=IMPLEMENT - 1))
    QuestionFactory.create(task=task, run=run, asked_at=began + timedelta(seconds=IMPLEMENT))
    details = client.get(f"/tasks/{task.pk}/details/").text.split("<dt>Time</dt>")[1].split("</dd>")[0]
    at_run = client.get(f"/tasks/{task.pk}/timeline/").text.split('class="run-wait"')[1].split("</li>")[0]
    assert times_of(details) == times_of(at_run) != []


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.DONE, Phase.WAITING_FOR_INPUT])
def test_the_times_of_steps_and_beside_them_sum_up_to_the_whole(
    client: Client, began: datetime, phase: Phase
) -> None:
    task = with_one_answer(began, phase)
    ended = began + timedelta(seconds=NOW - 2.5)
    if phase == Phase.DONE:
        Step.objects.filter(task=task).filter(position=2).update(ended_at=ended)
        Task.objects.filter(pk=task.pk).update(ended_at=ended + timedelta(seconds=1.2))
    if phase == Phase.WAITING_FOR_INPUT:
        for thing in (task, task.steps.get(position=2)):
            move(thing, began, waiting_for_input=NOW - 30.6)
    Task.objects.filter(pk=task.pk).update(
        lease_owner="w", lease_expires=timezone.now() + timedelta(minutes=1)
    )
    details = tidy(client.get(f"/tasks/{task.pk}/details/").text).split("<dt>Time</dt>")[1].split("</dd>")[0]
    working, _, waiting = strip_tags(details).partition("working")
    assert sum(timeline(client, task)) == seconds_in(working) > 150
    whole = ((ended if phase == Phase.DONE else timezone.now()) - began).total_seconds()
    assert abs(seconds_in(working) + seconds_in(waiting) - whole) <= 2

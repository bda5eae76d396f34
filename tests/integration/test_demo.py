"""The demo: a portal with tasks in every phase, whose pages can all be opened."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from tasks_app.core.ladder import RungAction
from tasks_app.core.phases import Phase, allowed
from tasks_app.management.demo import PROJECTS, TASKS, fill
from tasks_app.models import Project, Question, Task, Transition
from tasks_app.services.usage.statistics import of_steps, of_task
from tests.browser import signed_in
from tests.factories import ProjectFactory, UserFactory

pytestmark = pytest.mark.django_db


def test_it_has_three_projects_and_tasks_in_every_phase() -> None:
    admin = UserFactory.create(is_superuser=True)
    fill(admin)
    assert set(Project.objects.values_list("name", flat=True)) == set(PROJECTS)
    assert Task.objects.count() == len(TASKS) == 20
    assert set(Task.objects.values_list("phase", flat=True)) == set(Phase)
    client = signed_in(admin)
    for task in Task.objects.all():
        assert client.get(reverse("task", args=[task.pk])).status_code == 200, task
    done = Task.objects.filter(phase=Phase.DONE)[0]
    assert "all checks passed" in client.get(reverse("task", args=[done.pk])).text
    assert "Notifications, 1 unread" in client.get(reverse("tasks")).text
    assert "NOTES.md" in client.get(reverse("task_diff", args=[done.pk])).text


def test_cards_say_who_is_asked_and_what_comes_next() -> None:
    admin = UserFactory.create(is_superuser=True)
    fill(admin)
    question = Question.objects.get(asked__user__username="ben")
    card = signed_in(admin).get(reverse("question", args=[question.pk])).text
    assert "Ben Okafor" in card and "CODEOWNERS" in card
    assert question.rungs.get(done_at=None).action == RungAction.EVERYBODY


def test_waiting_does_not_count_as_work() -> None:
    fill(UserFactory.create(is_superuser=True))
    asked = Task.objects.get(title="Round prices the way the cashier does")
    took = of_task(asked).duration
    # Two steps of six minutes; then the question, 34 minutes ago.
    assert (round((took.working or 0) / 60), round(took.paused / 60)) == (12, 34)
    by_step = of_steps(list(asked.steps.all()))
    assert [round((one.duration.working or 0) / 60) for one in by_step.values()] == [6, 6, 0]


def test_each_phase_was_reached_by_recorded_moves_that_no_one_is_told_of_again() -> None:
    fill(UserFactory.create(is_superuser=True))
    for task in Task.objects.all():
        for thing in (task, *task.steps.all()):
            step = None if isinstance(thing, Task) else thing
            moves = list(Transition.objects.filter(task=task, step=step).order_by("pk"))
            assert thing.phase == (moves[-1].target if moves else Phase.PENDING), thing
            assert [move.source for move in moves[1:]] == [move.target for move in moves[:-1]]
            assert all(allowed(Phase(move.source), Phase(move.target)) for move in moves)
            assert all(move.announced_at for move in moves)


def test_it_is_not_put_among_the_tasks_of_an_installation() -> None:
    ProjectFactory.create()
    with pytest.raises(CommandError, match="a data directory of its own"):
        call_command("demo")

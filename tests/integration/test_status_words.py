"""What `status` and a result say of tasks: what they wait for, and no more than there is."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import QuestionKind, Task, Transition
from tasks_app.permissions import Principal
from tasks_app.services.tasks import cancel_task
from tasks_app.web.tasks.details import TaskDetails
from tests.browser import signed_in
from tests.factories import QuestionFactory, SequenceFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


def status(*of: str) -> str:
    out = StringIO()
    call_command("status", *of, stdout=out)
    return out.getvalue()


def test_a_task_that_waits_says_for_what_and_offers_no_empty_result() -> None:
    task = QuestionFactory.create(kind=QuestionKind.APPROVAL).task
    Task.objects.filter(pk=task.pk).update(base_commit="a" * 40, head_commit="a" * 40)
    said = status(str(task.pk))
    assert "A tool call needs an approval. The task waits for it." in said
    assert "Fetch the result" not in said
    Task.objects.filter(pk=task.pk).update(head_commit="b" * 40)
    assert "Fetch the result" in status(str(task.pk))


def cancelled(**fields: Any) -> tuple[Task, Principal]:
    task, by = (
        TaskFactory.create(phase=Phase.RUNNING, **fields),
        acting(UserFactory.create(first_name="Mia", is_superuser=True)),
    )
    cancel_task(task, by=by)
    task.refresh_from_db()
    return task, by


def test_a_cancelled_task_says_by_whom_and_why() -> None:
    task, by = cancelled()
    said = status(str(task.pk))
    assert f"Cancelled by {by.user.shown_name}, " in said
    assert "cancelled it" not in said, "the button alone is no reason"
    why = "Mia ended it at its soft limit: it had cost $0.03"
    Transition.objects.filter(task=task, target=Phase.CANCELLED).update(reason=why)
    assert why in " ".join(status(str(task.pk)).split())
    assert why in signed_in(by.user).get(reverse("task", args=[task.pk])).text


def test_no_step_of_a_cancelled_task_looks_as_if_it_would_still_run() -> None:
    task, _ = cancelled()
    task.steps.filter(position=1).update(started_at=timezone.now())
    assert [one.phase_display.label for one in task.steps.all()] == ["cancelled", "not run"]
    assert "pending" not in status(str(task.pk))


def test_a_step_whose_turn_has_not_come_is_not_started_in_pages_and_terminal() -> None:
    task = TaskFactory.create(phase=Phase.RUNNING)
    task.steps.update(phase=Phase.PENDING, started_at=None)
    admin = UserFactory.create(is_superuser=True)
    page = signed_in(admin).get(reverse("task_timeline", args=[task.pk])).text
    for said in (status(str(task.pk)), page):
        assert "not started" in said and "pending" not in said


def test_lists_tell_what_was_not_started() -> None:
    sequence = SequenceFactory.create(phase=Phase.RUNNING)
    TaskFactory.create(sequence=sequence, phase=Phase.PENDING, queued_at=None)
    said = status()
    assert said.count("not started") == 2 and "0 of" not in said, "neither the task nor its sequence"


def test_an_earlier_task_of_a_sequence_offers_nothing_to_publish() -> None:
    sequence = SequenceFactory.create()
    tasks = [TaskFactory.create(sequence=sequence, project=sequence.project, file=name) for name in "ab"]
    viewer = acting(UserFactory.create())
    seen = [TaskDetails(task, viewer).is_continued for task in tasks]
    assert seen == [True, False]

"""Asking a human at the soft cost limit of a task (M8)."""

from __future__ import annotations

from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.history.audit import record
from tasks_app.history.events.append import append_one
from tasks_app.history.events.payloads import question_payload
from tasks_app.history.spans import begin_wait
from tasks_app.history.transitions import move
from tasks_app.models import Action, Change, ChangeKind, EventKind, Question, QuestionKind, Run, Step, Task
from tasks_app.services.costs.soft_limit import WAY, is_reached, question_at_limit


def ask_if_soft_limit_reached(step: Step, lease: Lease) -> bool:
    """Ask whether the task may go on if it has reached its soft limit. Return whether it waits.

    Phases, question and log are one transaction: a worker that dies has asked, or its successor does.
    """
    if not is_reached(step.task_id):
        return False
    with lease.fenced() as task:
        reason = "the soft cost limit is reached"
        move(step, Phase.WAITING_FOR_INPUT, reason=reason, epoch=lease.epoch)
        move(task, Phase.WAITING_FOR_INPUT, reason=reason, epoch=lease.epoch)
        _store_question(task, step)
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    crash_point("asked-about-cost")
    return True


def _store_question(task: Task, step: Step) -> None:
    number = task.questions.count() + 1
    question = Question.objects.create(
        task=task,
        step=step,
        run=Run.objects.filter(step__task=task).latest("pk"),
        number=number,
        kind=QuestionKind.COST,
        way=WAY,
        tool_use_id=f"{WAY}-{number}",
        deferred=False,
        asked_at=timezone.now(),
        **question_at_limit(task, step),
    )
    begin_wait(question)
    append_one(question.run, EventKind.QUESTION, question_payload(question))
    record(
        Action.ASKED, task=task, subject=question.headline, question=number, actor_name="the portal"
    )  # fmt: skip

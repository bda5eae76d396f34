"""Actions on many tasks at once, each with a result of its own, and retrying a task from a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput, CatHerderError, IllegalMove
from tasks_app.core.phases import RETRYABLE, Phase
from tasks_app.history.audit import record
from tasks_app.history.transitions import move
from tasks_app.models import Action, Step, Task, User
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.tasks import (
    cancel_task,
    checked_message,
    has_successor,
    locked,
    resume_task,
    start_task,
)
from tasks_app.services.workers.worker_notifier import notify_on_commit


class BulkAction(StrEnum):
    START = "start"
    RESUME = "resume"
    RETRY = "retry"
    CANCEL = "cancel"


#: What was done with a task, for people.
DONE = {
    BulkAction.START: "started",
    BulkAction.RESUME: "resumed",
    BulkAction.RETRY: "retried",
    BulkAction.CANCEL: "cancelled",
}


@dataclass(frozen=True)
class BulkResult:
    """The outcome for one task: `said` is the reason if the action was not done."""

    task: Task
    done: bool
    said: str


def act_on_tasks(tasks: Iterable[Task], action: BulkAction, *, by: Principal) -> list[BulkResult]:
    """Do the same with each task, in a transaction of its own: one that is refused stops no other."""
    return [_act_on(task, action, by=by) for task in tasks]


def _act_on(task: Task, action: BulkAction, *, by: Principal) -> BulkResult:
    try:
        _ACTIONS[action](task, by=by)
    except CatHerderError as error:
        return BulkResult(task, False, str(error))
    return BulkResult(task, True, DONE[action])


def _start_new(task: Task, *, by: Principal) -> None:
    """Start the task. Unlike `start_task`, say so if it was started before."""
    if not task.not_started:
        raise BadInput(f"Task “{task}” was started before and is {task.phase_display.label}.")
    start_task(task, by=by)


def _retry(task: Task, *, by: Principal) -> None:
    """Retry the step in which the task stopped."""
    step = task.steps.exclude(phase=Phase.DONE).order_by("position").first()
    if step is None:
        raise BadInput("All steps are done. Retry from one of them on the page of the task.")
    retry_from(task, step, by=by)


_ACTIONS: dict[BulkAction, Callable[..., None]] = {
    BulkAction.START: _start_new,
    BulkAction.RESUME: resume_task,
    BulkAction.RETRY: _retry,
    BulkAction.CANCEL: cancel_task,
}


# Retry a task from a step. The earlier runs stay in the history.


def retry_from(
    task: Task, step: Step, *, by: Principal, put_back: bool = False, notify: bool = True, message: str = ""
) -> None:
    """Retry `step` and all steps after it, each in a new session, on the present files.

    With `put_back`, a worker first restores the files as they were before the step. The agents read `message`
    in their prompts. Raises NotAllowed, or IllegalMove or BadInput with the reason why this is not possible.
    """
    require_actor(by, task.project)
    message = checked_message(message)
    reason = f"{by.user.shown_name} retried from {step.name}"
    with transaction.atomic():
        task = locked(task)
        step = task.steps.get(pk=step.pk)
        if why := why_not_retry(task, step):
            raise why
        reset_to = _known_base_commit(step) if put_back else ""
        for one in task.steps.filter(position__gte=step.position):
            reset_step(one, reason=reason, by=by.user, put_back=put_back)
        task.questions.forget_ends()
        move(
            task, Phase.PENDING, reason=reason, by=by.user, message=message, failure="", early_end="",
            resets_at=None, retry_at=None, queued_at=task.queued_at or timezone.now(), reset_to=reset_to,
        )  # fmt: skip
        record(Action.TASK_RETRIED, by=by.user, task=task, step=step.name, put_back=put_back)
        if notify:
            notify_on_commit(task.pk)


def why_not_retry(task: Task, step: Step) -> IllegalMove | BadInput | None:
    """Return why the task cannot be retried from the step; None if it can."""
    what, target = f"Task “{task}”", "pending again"
    if task.phase not in RETRYABLE:
        return IllegalMove(what, task.phase, f"{target}; cancel it first")
    if has_successor(task):
        return IllegalMove(what, "followed by another task of its sequence, which builds on it,", target)
    if not step.runs.exists():
        return BadInput(f"the step “{step}” has not run yet; let the task go on instead", where="retry")
    if before := task.steps.filter(position__lt=step.position).exclude(phase=Phase.DONE).first():
        return BadInput(f"the step “{before}” before “{step}” is not done", where="retry")
    return None


def _known_base_commit(step: Step) -> str:
    if not step.base_commit:
        raise BadInput(f"what the files were before “{step}” is not known", where="retry")
    return step.base_commit


def reset_step(
    step: Step, *, reason: str, by: User | None, epoch: int | None = None, put_back: bool = False
) -> None:
    """Reset the step to pending. All its runs become history, with `put_back` their work, too."""
    fresh: dict[str, Any] = {
        "failures": 0,
        "failure": "",
        "first_run": step.runs.count() + 1,
        "base_commit": "",
        "base_ignored": "",
        "head_commit": "",
    }
    if put_back:
        fresh["kept_from"] = fresh["first_run"]
    if step.phase == Phase.PENDING:
        Step.objects.filter(pk=step.pk).update(**fresh)
    else:
        move(step, Phase.PENDING, reason=reason, by=by, epoch=epoch, **fresh)

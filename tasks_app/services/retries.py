"""Retry a task from a step. The earlier runs stay in the history."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove
from tasks_app.core.phases import RETRYABLE, Phase
from tasks_app.history.audit import record
from tasks_app.history.transitions import move
from tasks_app.models import Action, Step, Task, User
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.tasks import has_successor, locked
from tasks_app.services.workers.worker_notifier import notify_on_commit


def retry_from(task: Task, step: Step, *, by: Principal, put_back: bool = False, notify: bool = True) -> None:
    """Retry `step` and all steps after it, each in a new session, on the present files.

    With `put_back`, a worker first restores the files as they were before the step. Raises NotAllowed, or
    IllegalMove or BadInput with the reason why this is not possible.
    """
    require_actor(by, task.project)
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
            task, Phase.PENDING, reason=reason, by=by.user, failure="", early_end="",
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

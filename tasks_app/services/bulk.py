"""One action on many tasks, with a result for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tasks_app.core.errors import BadInput, CatHerderError
from tasks_app.core.phases import Phase
from tasks_app.models import Task
from tasks_app.permissions import Principal
from tasks_app.services.retries import retry_from
from tasks_app.services.tasks import cancel_task, resume_task, start_task


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
    """What became of one task: `said` is the reason if the action was not done."""

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

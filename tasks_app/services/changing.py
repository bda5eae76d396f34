"""Changing a task that exists: how readily its agent asks."""

from __future__ import annotations

from django.db import transaction

from tasks_app.config.threshold import threshold_fault
from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Change, ChangeKind, Task
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.tasks import locked


def change_threshold(task: Task, value: int, *, by: Principal) -> None:
    """Set the task's threshold; it holds from the next run on, in whatever phase the task is.

    A session that goes on is told with its next prompt, or with the next answer. Raises NotAllowed, or
    BadInput for anything but a whole number from 0 to 5.
    """
    require_actor(by, task.project)
    if fault := threshold_fault(value):
        raise BadInput(f"the threshold {fault}", where="threshold")
    with transaction.atomic():
        task = locked(task)
        if task.threshold == value:
            return
        before, task.threshold = task.threshold, value
        task.save(update_fields=["threshold"])
        Change.objects.create(task=task, kind=ChangeKind.TASK)
        record(Action.TASK_CHANGED, by=by.user, task=task, threshold=[before, value])

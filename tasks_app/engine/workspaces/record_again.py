"""Recording a workspace again after the portal's repository lost its recorded commits."""

from __future__ import annotations

import logging

from tasks_app.engine.lease import Lease
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.models import Change, ChangeKind, Sequence, Step, Task, paths

logger = logging.getLogger(__name__)

#: The beginning of the sentence on the task's page. Later recordings keep that sentence.
RECORDED_AGAIN = "Recorded again"


def restore_lost_work(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Record the workspace again if the task's newest commit is no longer in the portal's repository.

    A damaged or deleted repository was fetched again, but the source does not have the commits of tasks. As
    long as the workspace exists the result is not lost, only the commits in between. The step is compared
    with what is recorded now or, if it is the task's first, with the task's start. Raises WorkspaceError.
    """
    task = step.task
    workspace = paths.workspace(task)
    repository = workspace.repository
    if not task.head_commit or not workspace.path.is_dir() or repository.has(task.head_commit):
        return
    label = f"{task.pk}-{step.position:02d}-restored-{task.lease_epoch}"
    commit = workspace.snapshot(
        label=label, sandbox=context.sandbox, recorded=task.base_commit, message=task.title, publish=True
    ).commit
    note = (
        f"{RECORDED_AGAIN}, because the portal's repository had lost commit {task.head_commit[:10]}: the"
        " files are as they were, but the changes of earlier steps can no longer be shown one by one."
    )
    logger.warning("task %s: %s", task.pk, note)
    began = step.base_commit
    if began and not repository.has(began):
        is_first = not task.steps.filter(position__lt=step.position).exists()
        began = task.base_commit if is_first else commit
    with lease.fenced() as current:
        left_out = [note, *current.left_out]
        Task.objects.filter(pk=task.pk).update(head_commit=commit, left_out=left_out)
        if task.sequence_id:
            Sequence.objects.filter(pk=task.sequence_id).update(head_commit=commit)
        Step.objects.filter(pk=step.pk).update(base_commit=began)
        Change.objects.create(task=current, kind=ChangeKind.TASK)
    task.head_commit, task.left_out, step.base_commit = commit, left_out, began

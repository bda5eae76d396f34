"""Which runs worked in a workspace, and whether the one on this host is what the last of them left."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from tasks_app.models import Run, Task, paths


def runs_in_workspace(task: Task) -> QuerySet[Run]:
    """Return the runs of all tasks that share the workspace, oldest first."""
    sharing = Q(step__task__sequence=task.sequence_id) if task.sequence_id else Q(step__task=task.pk)
    return Run.objects.filter(sharing).select_related("step__task").order_by("pk")


def is_outdated(task: Task) -> bool:
    """Return whether another host has made the last run, so that the workspace here is older than that."""
    last = runs_in_workspace(task).last()
    return last is not None and last.data_dir != paths.worker_data_dir_id()

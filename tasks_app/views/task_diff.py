"""What a task, or one step of it, changed in the repository."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from tasks_app import places
from tasks_app.errors import WorkspaceError
from tasks_app.models import Step, Task
from tasks_app.views.access import is_htmx, task_or_404
from tasks_app.views.rendering.diff import FileDiff, parse_diff
from tasks_app.workspace import diff


def task_diff(request: HttpRequest, task_id: int) -> HttpResponse:
    """`?step=N` for the change of one step; else the change of the whole task."""
    task = task_or_404(request, task_id)
    step = _step(request, task)
    context: dict[str, object] = {"task": task, "step": step, "steps": task.steps.exclude(head_commit="")}
    try:
        context["files"] = _files(task, step or task)
    except WorkspaceError as error:
        context["trouble"] = str(error)
    return render(request, "tasks/_diff.html" if is_htmx(request) else "tasks/diff.html", context)


def _step(request: HttpRequest, task: Task) -> Step | None:
    position = request.GET.get("step", "")
    if not position:
        return None
    if not position.isdecimal() or len(position) > 5:
        raise Http404(f"There is no step {position}.")
    return get_object_or_404(task.steps, position=int(position))


def _files(task: Task, changed: Task | Step) -> list[FileDiff] | None:
    """None while there is nothing to compare."""
    base = _base(changed)
    if not (base and changed.head_commit):
        return None
    repository = places.repository(task.project)
    return parse_diff(diff(repository, base=base, head=changed.head_commit))


def _base(changed: Task | Step) -> str:
    """A task of a sequence begins where the one before it ended, not where the sequence did."""
    first = changed.steps.first() if isinstance(changed, Task) else None
    return (first.base_commit if first else "") or changed.base_commit

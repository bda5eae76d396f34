"""The diff of a task or of one of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.http import urlencode

from tasks_app.core.errors import WorkspaceError
from tasks_app.models import Step, Task
from tasks_app.services.difference import difference_of
from tasks_app.web.pages.access import is_htmx, task_or_404
from tasks_app.web.rendering.diff import FileDiff, parse_diff


@dataclass(frozen=True)
class ShownFile:
    """A file of a diff, and the URL of the complete one."""

    diff: FileDiff
    address: str


@dataclass(frozen=True)
class Changes:
    """A diff with its files and numbers of lines."""

    files: list[ShownFile]

    @cached_property
    def added(self) -> int:
        return sum(file.diff.added for file in self.files)

    @cached_property
    def removed(self) -> int:
        return sum(file.diff.removed for file in self.files)


def task_diff(request: HttpRequest, task_id: int) -> HttpResponse:
    """`?step=N`: the change of one step; else that of the whole task. `?file=PATH`: one file of it."""
    task = task_or_404(request, task_id)
    step = chosen_step(request, task)
    context: dict[str, object] = {"task": task, "step": step, "steps": task.steps.exclude(head_commit="")}
    try:
        if "file" in request.GET:
            context["file"] = _one_file(request, task, step)
        else:
            context["changes"] = _changes(task, step)
    except WorkspaceError as error:
        context["trouble"] = str(error)
    return render(request, _template(request), context)


def _template(request: HttpRequest) -> str:
    if not is_htmx(request):
        return "tasks/diff.html"
    return "tasks/_diff_file.html" if "file" in request.GET else "tasks/_diff.html"


def chosen_step(request: HttpRequest, task: Task) -> Step | None:
    """Return the step of `?step=N`, or None. Raises Http404."""
    position = request.GET.get("step", "")
    if not position:
        return None
    if not position.isdecimal() or len(position) > 5:
        raise Http404(f"There is no step {position}.")
    return get_object_or_404(task.steps, position=int(position))


def _changes(task: Task, step: Step | None) -> Changes | None:
    """Return the diff, or None if there is nothing to compare."""
    text = _text(task, step)
    return None if text is None else Changes([_shown(file, task, step) for file in parse_diff(text)])


def _shown(file: FileDiff, task: Task, step: Step | None) -> ShownFile:
    wanted = {"file": file.path, "was": file.old_path, "step": step.position if step else ""}
    given = {name: value for name, value in wanted.items() if value != ""}
    return ShownFile(file, f"{reverse('task_diff', args=[task.pk])}?{urlencode(given)}")


def _one_file(request: HttpRequest, task: Task, step: Step | None) -> FileDiff:
    """Return all lines of one file, up to a limit. Raises Http404 if it was not changed."""
    names = [request.GET[name] for name in ("file", "was") if request.GET.get(name)]
    if not names or any("\0" in name or len(name) > 4096 for name in names):
        raise Http404("There is no such file.")
    files = parse_diff(_text(task, step, *names) or "")
    found = next((file for file in files if file.path == names[0]), None)
    if found is None:
        raise Http404("That file was not changed.")
    found.fetched = False
    return found


def _text(task: Task, step: Step | None, *paths: str) -> str | None:
    difference = difference_of(step or task)
    return difference.diff(*paths) if difference else None

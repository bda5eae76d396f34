"""The diff of a task, of one of its steps, or since a review, with the threads beside its lines."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cached_property

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.http import urlencode

from tasks_app.core.errors import WorkspaceError
from tasks_app.models import Review, Step, Task
from tasks_app.services.difference import difference_of
from tasks_app.web.pages.access import is_htmx, may_act, task_or_404
from tasks_app.web.pages.review_threads import (
    ShownLine,
    ThreadsBeside,
    own_last_review,
    review_state,
    threads_beside,
)
from tasks_app.web.rendering.diff import FileDiff, parse_diff


@dataclass(frozen=True)
class ShownFile:
    """A file of a diff with its lines and threads, and the URL of the complete one."""

    diff: FileDiff
    address: str
    lines: list[ShownLine]


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


@dataclass(frozen=True)
class Comparison:
    """What is compared: the whole task, one `step` of it, or the newest result with a review's commit."""

    task: Task
    step: Step | None = None
    since: Review | None = None

    def text(self, *paths: str) -> str | None:
        """Return the diff of the given files or of all; None if there is nothing to compare."""
        difference = difference_of(self.step or self.task)
        if difference and self.since:
            difference = replace(difference, base=self.since.commit)
        return difference.diff(*paths) if difference else None

    @property
    def query(self) -> dict[str, str | int]:
        """The parameters of its URL."""
        if self.step:
            return {"step": self.step.position}
        return {"since": self.since.number or 0} if self.since else {}

    @property
    def takes_threads(self) -> bool:
        """Whether its lines are those of the newest result, beside which threads stand."""
        return self.step is None or self.step.head_commit == self.task.head_commit


def task_diff(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show what changed, with the threads of reviewers.

    `?step=N`: by one step; `?since=N`: since review N; else by the whole task. `?file=PATH`: one file of it.
    """
    task = task_or_404(request, task_id)
    compared = Comparison(task, chosen_step(request, task), _chosen_review(request, task))
    threads = threads_beside(request, task) if compared.takes_threads else ThreadsBeside()
    context: dict[str, object] = {
        "task": task,
        "step": compared.step,
        "since": compared.since,
        "steps": task.steps.exclude(head_commit=""),
        "last_review": own_last_review(request, task),
        "may_act": may_act(request, task.project) and compared.takes_threads,
        "fresh_key": uuid.uuid4(),
    }
    try:
        if "file" in request.GET:
            file = _one_file(request, compared)
            context |= {"file": file, "lines": threads.lines_of(file)}
        else:
            context |= {"changes": _changes(compared, threads), "elsewhere": threads.elsewhere}
            context["review"] = review_state(request, task) if task.head_commit else None
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


def _chosen_review(request: HttpRequest, task: Task) -> Review | None:
    """Return the review of `?since=N`, or None. Raises Http404."""
    number = request.GET.get("since", "")
    if not number:
        return None
    if not number.isdecimal() or len(number) > 9:
        raise Http404(f"There is no review {number}.")
    return get_object_or_404(task.reviews, number=int(number))


def _changes(compared: Comparison, threads: ThreadsBeside) -> Changes | None:
    """Return the diff, or None if there is nothing to compare."""
    text = compared.text()
    return None if text is None else Changes([_shown(file, compared, threads) for file in parse_diff(text)])


def _shown(file: FileDiff, compared: Comparison, threads: ThreadsBeside) -> ShownFile:
    wanted = {"file": file.path, "was": file.old_path, **compared.query}
    given = {name: value for name, value in wanted.items() if value != ""}
    address = f"{reverse('task_diff', args=[compared.task.pk])}?{urlencode(given)}"
    return ShownFile(file, address, threads.lines_of(file))


def _one_file(request: HttpRequest, compared: Comparison) -> FileDiff:
    """Return all lines of one file, up to a limit. Raises Http404 if it was not changed."""
    names = [request.GET[name] for name in ("file", "was") if request.GET.get(name)]
    if not names or any("\0" in name or len(name) > 4096 for name in names):
        raise Http404("There is no such file.")
    files = parse_diff(compared.text(*names) or "")
    found = next((file for file in files if file.path == names[0]), None)
    if found is None:
        raise Http404("That file was not changed.")
    found.fetched = False
    return found

"""The comparison of a diff page: a task, its sequence, a step, a run, or the newest result since a review."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.http import urlencode

from tasks_app.git import ChangedFile
from tasks_app.models import Review, Run, Step, Task
from tasks_app.services.difference import (
    Difference,
    base_of,
    base_of_sequence,
    difference_of,
    has_separate_runs,
)
from tasks_app.web.access import number_from

#: Maximum length of a path that git and Linux know.
_PATH = 4096


@dataclass(frozen=True)
class Comparison:
    """The whole task, one `step` of it, one `run`, or the newest result `since` a review.

    `of_sequence`: the task's result with the beginning of its sequence, or with what was merged since.
    """

    task: Task
    step: Step | None = None
    run: Run | None = None
    since: Review | None = None
    of_sequence: bool = False

    @cached_property
    def difference(self) -> Difference | None:
        """The two commits; None if there is nothing to compare."""
        difference = difference_of(self.run or self.step or self.task)
        if difference and self.since:
            return replace(difference, base=self.since.commit)
        if difference and self.of_sequence and self.task.sequence:
            return replace(difference, base=base_of_sequence(self.task.sequence, until=self.task))
        return difference

    @property
    def query(self) -> dict[str, str | int]:
        """The parameters of its URLs."""
        if self.run:
            return {"step": self.run.step.position, "run": self.run.number}
        if self.step:
            return {"step": self.step.position}
        if self.of_sequence:
            return {"from": "sequence"}
        if self.since:
            return {"since": self.since.number or 0}
        return {}

    @property
    def name(self) -> str:
        """The beginning of the names of files about it."""
        words = [word for pair in self.query.items() for word in pair]
        return "-".join(["task", str(self.task.pk), *map(str, words)])

    @property
    def parameters(self) -> str:
        """The query of its URLs, with its question mark; "" for the whole task."""
        return f"?{urlencode(self.query)}" if self.query else ""

    def url(self, name: str, **parameters: str | int | None) -> str:
        """Return the URL of the page `name` about this comparison, without empty parameters."""
        wanted = {**parameters, **self.query}
        given = {key: value for key, value in wanted.items() if value is not None and value != ""}
        address = reverse(name, args=[self.task.pk])
        return f"{address}?{urlencode(given)}" if given else address

    @property
    def takes_threads(self) -> bool:
        """Return whether its new lines are those of the newest result, beside which threads stand."""
        return self.difference is not None and self.difference.head == self.task.head_commit

    @cached_property
    def takes_old_threads(self) -> bool:
        """Return whether its old lines are those of where the task began, beside which threads stand too."""
        return self.difference is not None and self.difference.base == base_of(self.task)

    def files(self, *paths: str) -> tuple[ChangedFile, ...]:
        """Return the files that differ, of all or of these. Raises WorkspaceError if a commit is lost."""
        return self.difference.files(*paths) if self.difference else ()


def chosen_comparison(request: HttpRequest, task: Task) -> Comparison:
    """Return what the URL chooses; else the whole task. Raises Http404.

    `?step=N`, `?step=N&run=M`, `?since=N` (a review) or `?from=sequence`. Of a step between whose runs others
    ran, it is the newest run.
    """
    step = chosen_step(request, task)
    of_sequence = request.GET.get("from") == "sequence" and task.sequence_id is not None
    return Comparison(task, step, _chosen_run(request, step), _chosen_review(request, task), of_sequence)


def chosen_step(request: HttpRequest, task: Task) -> Step | None:
    """Return the step of `?step=N`, or None. Raises Http404."""
    position = number_in(request, "step")
    return None if position is None else get_object_or_404(task.steps, position=position)


def _chosen_run(request: HttpRequest, step: Step | None) -> Run | None:
    number = number_in(request, "run")
    if number is None:
        if step is None or not has_separate_runs(step):
            return None
        return step.runs.exclude(head_commit="").last()
    if step is None:
        raise Http404("A run is one of a step.")
    return get_object_or_404(step.runs.select_related("step__task__project"), number=number)


def _chosen_review(request: HttpRequest, task: Task) -> Review | None:
    number = number_in(request, "since")
    return None if number is None else get_object_or_404(task.reviews, number=number)


def number_in(request: HttpRequest, name: str) -> int | None:
    """Return the number in a parameter of the URL; None without it. Raises Http404 for anything else."""
    given = request.GET.get(name, "")
    if not given:
        return None
    number = number_from(given, digits=9)
    if number is None:
        raise Http404(f"There is no {name} {given[:20]}.")
    return number


def chosen_file(request: HttpRequest, compared: Comparison) -> ChangedFile:
    """Return the file of `?file=PATH` (and `was=OLD`, for a renamed one). Raises Http404."""
    given = request.POST if request.method == "POST" else request.GET
    names = [given[name] for name in ("file", "was") if given.get(name)]
    if not names or any("\0" in name or len(name) > _PATH for name in names):
        raise Http404("There is no such file.")
    found = next((file for file in compared.files(*names) if file.path == given.get("file")), None)
    if found is None:
        raise Http404("That file was not changed.")
    return found

"""Rows of tasks, which all lists show alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.db.models import Count, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce, Concat, JSONObject, NullIf, Trim
from django.http import HttpRequest

from tasks_app.core.amounts import counted
from tasks_app.core.phases import Phase
from tasks_app.git import Repository, sizes_of_changes
from tasks_app.models import (
    Publication,
    PublicationState,
    PullRequest,
    QuestionKind,
    Review,
    ReviewThread,
    ReviewVerdict,
    Run,
    Task,
    ThreadState,
    Transition,
    paths,
)
from tasks_app.services.difference import difference_of
from tasks_app.services.results import StepCheck, checks_by_task
from tasks_app.services.search import rows_in_order
from tasks_app.services.task_groups import dollars_of, oldest_question
from tasks_app.services.workers.queue import Queue
from tasks_app.web.access import actable_projects
from tasks_app.web.rendering.activity import activities, shown_steps

#: What a task's row shows of its pull request, besides the checks: SQLite would return these as text.
_OF_PULL_REQUEST = {name: name for name in ("kind", "number", "state", "ended_by")}

#: Sizes of changes by task id and commit. A page reads a few that are not known yet.
_sizes: dict[tuple[int, str], str] = {}
_MOST_READ, _MOST_KEPT = 12, 5_000


def rows_of_tasks(ids: list[int], **more: Any) -> list[Any]:
    """Return the tasks in this order, with their steps and what else a row shows."""
    of_task = {"task": OuterRef("pk")}
    of_result = {**of_task, "commit": OuterRef("head_commit")}
    pull_request = PullRequest.objects.filter(**of_task).order_by("-pk")
    approvals = Review.objects.deciding().filter(**of_result, verdict=ReviewVerdict.APPROVE)
    threads = ReviewThread.objects.sent().filter(**of_task).order_by().values("task")
    open_threads, answered = (
        Subquery(threads.filter(state=state).annotate(count=Count("pk")).values("count"))
        for state in (ThreadState.OPEN, ThreadState.ANSWERED)
    )
    rows = Task.objects.select_related("project", "sequence", "created_by").defer("text", "body")
    rows = rows.prefetch_related(shown_steps()).annotate(
        question_items=Subquery(oldest_question().values("items")[:1]),
        question_evidence=Subquery(oldest_question().filter(kind=QuestionKind.PLAN).values("evidence")[:1]),
        asked_at=Subquery(oldest_question().values("asked_at")[:1]),
        cancelled_by=_cancelled_by(),
        cost=dollars_of(Run.objects.filter(step__task=OuterRef("pk"))),
        approved_by=Subquery(approvals.order_by("-pk").values(name=_name_of("author"))[:1]),
        open_threads=open_threads,
        answered_threads=answered,
        publication=Subquery(Publication.objects.filter(**of_result).order_by("-pk").values("state")[:1]),
        shown_pull_request=Subquery(pull_request.values(shown=JSONObject(**_OF_PULL_REQUEST))[:1]),
        checks_of_pull_request=Subquery(pull_request.values("checks")[:1]),
        **more,
    )
    return rows_in_order(rows, ids)


def _name_of(user: str) -> Coalesce:
    """Return the name of a related user as User.shown_name is."""
    full_name = NullIf(Trim(Concat(f"{user}__first_name", Value(" "), f"{user}__last_name")), Value(""))
    return Coalesce(full_name, f"{user}__username")


def _cancelled_by() -> Subquery:
    """Return who cancelled a cancelled task last."""
    of_task = Transition.objects.filter(
        task=OuterRef("pk"), task__phase=Phase.CANCELLED, step=None, target=Phase.CANCELLED
    )
    return Subquery(of_task.order_by("-pk").values(name=_name_of("actor"))[:1])


def of_rows(request: HttpRequest, tasks: list[Any], line: Queue | None = None) -> dict[str, Any]:
    """Return what the template of a row needs besides its task. `line`: if the caller has it already."""
    waits = any(task.phase == Phase.PENDING and not task.not_started for task in tasks)
    due = (line or Queue()).due if waits else {}
    return {
        "positions": {task_id: place for task_id, (place, _) in due.items()},
        "actable": actable_projects(request),
        "activities": activities(tasks),
        "results": _results_of(tasks),
    }


def _results_of(tasks: list[Any]) -> dict[int, str]:
    """Return how the results stand by task id, with the sizes of their changes."""
    unread = [task for task in tasks if (task.pk, task.head_commit) not in _sizes and _has_result(task)]
    _read_sizes(unread[:_MOST_READ])
    results, checks = {}, checks_by_task(tasks)
    for task in tasks:
        said = (_sizes.get((task.pk, task.head_commit), ""), _result_of(task, checks.get(task.pk, ())))
        results[task.pk] = " · ".join(filter(None, said))
    return results


def _has_result(task: Any) -> bool:
    """Return whether the size of its change is shown; of a task in a sequence its base takes queries."""
    if task.phase != Phase.DONE or task.sequence_id or task.only_rehearsed:
        return False
    return task.head_commit not in ("", task.base_commit)


def _read_sizes(tasks: list[Any]) -> None:
    """Remember the sizes of the changes, such as “+122 −8, 4 files”; "" if one cannot be read.

    They never change: git is asked once for each result in each process, at once for all of a project.
    """
    if len(_sizes) >= _MOST_KEPT:
        _sizes.clear()
    _sizes.update({(task.pk, task.head_commit): "" for task in tasks})
    changes: dict[Repository, dict[str, str]] = defaultdict(dict)
    for task in tasks:
        if found := difference_of(task):
            changes[found.repository][found.head] = found.base
    sizes = {repository: sizes_of_changes(repository, bases) for repository, bases in changes.items()}
    for task in tasks:
        size = sizes.get(paths.repository(task.project), {}).get(task.head_commit)
        _sizes[task.pk, task.head_commit] = str(size or "")


def _result_of(task: Any, checks: Sequence[StepCheck]) -> str:
    """Return how the result of an ended task stands, such as “checks 3/3 · approved by Ann”."""
    said = []
    if task.cancelled_by:
        said.append(f"by {task.cancelled_by}")
    if task.only_rehearsed:
        return "Rehearsed: nothing was changed. Connect a model."
    # A narrow row cuts what stands at its end.
    if task.shown_pull_request:
        row = PullRequest(**task.shown_pull_request, checks=task.checks_of_pull_request)
        ci = f", CI: {row.checks_in_words}" if row.checks_in_words else ""
        said.append(row.end_in_words or f"{row} is open{ci}")
    elif task.publication:
        said.append(PublicationState(task.publication).label)
    if checks and not task.ended_early:
        said.append(f"checks {sum(one.passed for one in checks)}/{len(checks)}")
    if task.approved_by:
        said.append(f"approved by {task.approved_by}")
    if task.open_threads:
        said.append(counted(task.open_threads, "open thread"))
    if task.answered_threads:
        said.append(counted(task.answered_threads, "answered thread"))
    return " · ".join(said)

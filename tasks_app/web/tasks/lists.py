"""The lists of tasks that people have open all day: what is going on now, and the queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page
from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Sequence,
    Task,
)
from tasks_app.models.task import Priority, TaskQuerySet
from tasks_app.permissions import (
    Principal,
    projects_visible_to,
    sequences_visible_to,
    tasks_visible_to,
)
from tasks_app.services.bulk import DONE, BulkAction, act_on_tasks
from tasks_app.services.list_filters import ListFilters
from tasks_app.services.task_groups import (
    GROUPS,
    QUEUED,
    SUMMARY,
    TaskGroup,
    dollars_of,
    ids_in_order,
    runs_of_today,
    tasks_in_group,
)
from tasks_app.services.workers.queue import Queue
from tasks_app.web.access import (
    current_user,
    is_htmx,
    number_from,
    principal_of,
    render_part_or_page,
    visible_projects,
)
from tasks_app.web.counting import CappedPaginator, count_words, ids_of_each, numbers_of_each
from tasks_app.web.task_rows import of_rows, rows_of_tasks
from tasks_app.web.tasks.first_steps import first_steps

PAGE = 50
#: Tasks that one bulk action changes at most.
MOST_SELECTED = 200
#: More names than fit into a list help nobody.
_MOST_NAMES = 200
#: Groups by the keys that they had in addresses of the dashboard.
_FORMER_KEYS = {
    "needs-you": "answer", "needs-others": "others", "running": "working", "not-running": "queued",
    "done": "finished", "cancelled": "finished",
}  # fmt: skip


@dataclass(frozen=True)
class ListedGroup:
    """A group with its shown tasks and the number of all, as `numbers_of_each` returns it."""

    group: TaskGroup
    tasks: list[Task]
    total: int

    @property
    def total_words(self) -> str:
        return count_words(self.total)

    @property
    def more(self) -> bool:
        return self.total > len(self.tasks)


@dataclass(frozen=True)
class SummaryPart:
    """A group's part of the summary, which is also a filter: `number` of them are `words`."""

    group: TaskGroup
    number: int

    @property
    def number_words(self) -> str:
        return count_words(self.number)

    @property
    def words(self) -> str:
        if self.number == 1 and self.group.counted_one:
            return self.group.counted_one
        return self.group.counted


def moved(request: HttpRequest, to: str, group: str = "", **parts: str) -> HttpResponse:
    """Redirect from an address of an earlier version, with its filters."""
    query = request.GET.copy()
    group = group or query.get("group", "")
    if group:
        query["group"] = _FORMER_KEYS.get(group, group)
    if query.pop("mine", None) == ["yes"]:
        query["person"] = current_user(request).get_username()
    return redirect(reverse(to, kwargs=parts) + f"?{query.urlencode()}".rstrip("?"))


def now(request: HttpRequest) -> HttpResponse:
    """Show the groups, or with `?group=` one of them with its pages. HTMX gets only the lists."""
    principal, filters, line = principal_of(request), ListFilters.from_query(request.GET), Queue()
    tasks = filters.matching_tasks(principal)
    query = urlencode(filters.url_parameters(), doseq=True)
    context: dict[str, Any] = {"filters": filters, "query": f"{query}&" if query else ""}
    if key := request.GET.get("group"):
        context |= _one_group(request, key, tasks)
    else:
        context |= _all_groups(request, tasks, line)
        context["stuck"] = list(_failed_sequences(principal, filters, tasks))
        if not (context["groups"] or context["stuck"] or filters):
            context["has_projects"] = projects_visible_to(principal).exists()
    context |= of_rows(request, [task for listed in context["groups"] for task in listed.tasks], line)
    if is_htmx(request):
        return render(request, "tasks/list/_groups.html", context)
    context["projects"] = [project.name for project in visible_projects(request)[:_MOST_NAMES]]
    context["first_steps"] = first_steps(current_user(request))
    return render(request, "tasks/list/now.html", context)


def summary_of(request: HttpRequest) -> dict[str, Any]:
    """Return the summary of all tasks that the user sees, for the other lists."""
    return _summary(_numbers_in(request, SUMMARY, tasks_visible_to(principal_of(request))))


def _numbers_in(request: HttpRequest, groups: Iterable[TaskGroup], tasks: TaskQuerySet) -> dict[str, Any]:
    """Return how many of the tasks are in each of these groups, and the dollars of today."""
    principal = principal_of(request)
    in_group = {group.key: tasks_in_group(tasks, group, principal) for group in groups}
    return numbers_of_each(current_user(request), in_group, dollars=dollars_of(runs_of_today(principal)))


def _summary(numbers: dict[str, Any]) -> dict[str, Any]:
    parts = [SummaryPart(group, numbers[group.key]) for group in SUMMARY]
    return {"summary": parts, "dollars": numbers["dollars"]}


def _all_groups(request: HttpRequest, tasks: TaskQuerySet, line: Queue) -> dict[str, Any]:
    principal = principal_of(request)
    in_group = {group.key: tasks_in_group(tasks, group, principal) for group in GROUPS}
    queries = {group.key: ids_in_order(in_group[group.key], group) for group in GROUPS}
    ids, dollars = ids_of_each(current_user(request), queries, dollars_of(runs_of_today(principal)))
    numbers = {"dollars": dollars, **{key: len(found) for key, found in ids.items()}}
    if ids[QUEUED.key]:
        ids[QUEUED.key] = line.in_line(in_group[QUEUED.key])
    first = {group: ids[group.key][: group.first] for group in GROUPS if ids[group.key]}
    rows = {task.pk: task for task in rows_of_tasks([task_id for few in first.values() for task_id in few])}
    groups = [
        ListedGroup(group, [rows[pk] for pk in few if pk in rows], numbers[group.key])
        for group, few in first.items()
    ]
    return _summary(numbers) | {"groups": groups}


def _one_group(request: HttpRequest, key: str, tasks: TaskQuerySet) -> dict[str, Any]:
    group = next((group for group in GROUPS if group.key == key), None)
    if group is None:
        raise Http404(f"There is no group of tasks named “{key}”.")
    numbers = _numbers_in(request, (*SUMMARY, group), tasks)
    found = ids_in_order(tasks_in_group(tasks, group, principal_of(request)), group)
    page: Page[int] = CappedPaginator(found, PAGE).get_page(request.GET.get("page"))
    listed = ListedGroup(group, rows_of_tasks(list(page.object_list)), numbers[key])
    return _summary(numbers) | {"groups": [listed], "page": page, "group": group}


def _failed_sequences(principal: Principal, filters: ListFilters, tasks: TaskQuerySet) -> QuerySet[Sequence]:
    """Return sequences that failed between two tasks, which no task row shows."""
    unfinished = Task.objects.filter(sequence=OuterRef("pk")).exclude(phase=Phase.DONE)
    sequences = sequences_visible_to(principal).filter(phase=Phase.FAILED)
    if filters:
        sequences = sequences.filter(pk__in=tasks.values("sequence"))
    return sequences.exclude(Exists(unfinished)).select_related("project")[:PAGE]


@require_POST
def tasks_bulk(request: HttpRequest) -> HttpResponse:
    """Do one action with all selected tasks and say for each of them what was done, or why it was not."""
    principal = principal_of(request)
    selected = filter(None, map(number_from, request.POST.getlist("task")[:MOST_SELECTED]))
    tasks = tasks_visible_to(principal).filter(pk__in=list(selected)).select_related("project").order_by("pk")
    try:
        action = BulkAction(request.POST.get("action", ""))
    except ValueError:
        return redirect("tasks")
    results = act_on_tasks(tasks, action, by=principal)
    context = {"results": results, "done": sum(one.done for one in results), "said": DONE[action]}
    return render_part_or_page(request, "tasks/list/_bulk.html", "tasks/list/bulk.html", context)


# The queue.


def queue(request: HttpRequest) -> HttpResponse:
    """Show what waits for a worker, a limit or a budget, and the workers. HTMX gets only the lists."""
    principal, found = principal_of(request), Queue()
    entries = found.seen_by(principal)
    seen = found.count_seen_by(principal)
    waiting = {entry.task.pk: entry for entry in entries}
    tasks = rows_of_tasks(list(waiting))
    context = {
        **of_rows(request, tasks, found),
        **summary_of(request),
        "queue": found,
        "slots": found.slots,
        "rows": [(task, waiting[task.pk]) for task in tasks],
        "more": seen - len(entries),
        "others": max(found.waiting - seen, 0),
        "priorities": Priority,
    }
    return render_part_or_page(request, "tasks/list/_waiting.html", "tasks/list/queue.html", context)

"""The dashboard with the first steps, the wall of running tasks, and the queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.paginator import Page
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Concat, NullIf, Trim
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text
from tasks_app.models import Invitation, Project, PullRequest, Question, Sequence, Task, Transition, User
from tasks_app.models.task import Priority, TaskQuerySet
from tasks_app.permissions import (
    Principal,
    projects_actable_by,
    projects_visible_to,
    sequences_visible_to,
    tasks_visible_to,
)
from tasks_app.services.accounts import dismiss_first_steps
from tasks_app.services.bulk import DONE, BulkAction, act_on_tasks
from tasks_app.services.search import rows_in_order
from tasks_app.services.workers.queue import Queue
from tasks_app.web.access import (
    actable_projects,
    current_user,
    is_htmx,
    number_from,
    principal_of,
    render_part_or_page,
    visible_projects,
)
from tasks_app.web.counting import CappedPaginator, count_words, counted
from tasks_app.web.frame import sandbox
from tasks_app.web.rendering.activity import activities, shown_steps

#: The project that `up` adds to a new installation.
_SAMPLE = "sample"


@dataclass(frozen=True)
class FirstStep:
    """`how` says what to do, or what it is good for; `url` leads there, if it is a page."""

    title: str
    how: str
    done: bool
    url: str = ""


def first_steps(user: User) -> list[FirstStep]:
    """Return the steps; none if all are done, for those who dismissed them, and for all but site admins."""
    if not user.is_superuser or user.first_steps_dismissed:
        return []
    steps = _steps(user)
    if all(step.done for step in steps):
        return []
    return steps


@require_GET
def first_steps_part(request: HttpRequest) -> HttpResponse:
    """Render the checklist alone, for the dashboard that is open while something gets done."""
    context = {"first_steps": first_steps(current_user(request))}
    return render(request, "tasks/dashboard/_first_steps.html", context)


@require_POST
def first_steps_dismiss(request: HttpRequest) -> HttpResponse:
    dismiss_first_steps(current_user(request))
    return HttpResponse() if is_htmx(request) else redirect("dashboard")


def _steps(user: User) -> list[FirstStep]:
    known = _known_steps(user)
    sample = known["sample"]
    free = " It costs nothing in rehearsal." if settings.ENVIRONMENT.rehearsal else ""
    run_sample = FirstStep(
        "Run the sample task",
        "See how an agent works, asks and continues." + free,
        known["sample_done"],
        reverse("task", args=[sample]) if sample else "",
    )
    return [
        *([run_sample] if sample else []),
        FirstStep(
            "Connect the real model",
            "Set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN and restart the portal.",
            not settings.ENVIRONMENT.rehearsal,
        ),
        FirstStep(
            "Install the sandbox",
            "apt install bubblewrap: agents then see the files of their task and no others.",
            sandbox().active,
        ),
        FirstStep(
            "Add your own repository",
            "A path, or an https or ssh URL. The portal works on its own copy.",
            known["own_project"],
            reverse("projects"),
        ),
        FirstStep(
            "Invite somebody",
            "On the page Members of a project. They can answer the questions of its tasks.",
            known["invited"],
            reverse("project_members", args=[known["project"]]) if known["project"] else "",
        ),
    ]


def _known_steps(user: User) -> dict[str, Any]:
    """Return what the database knows of the steps, by one query."""
    sample = Project.objects.filter(name=_SAMPLE).order_by().values("pk")
    # What goes on comes first, as an index of the project's tasks has it: by id alone, all tasks were read.
    of_sample = Task.objects.filter(project=sample[:1]).order_by("-phase", "pk")
    others = User.objects.exclude(pk=OuterRef("pk")).filter(is_active=True)
    own = Project.objects.exclude(name=_SAMPLE).order_by("-pk")
    known = (
        User.objects.filter(pk=user.pk)
        .annotate(
            sample=of_sample.values("pk")[:1],
            sample_done=Exists(of_sample.filter(phase=Phase.DONE).order_by()),
            own_project=Exists(own),
            project=own.values("pk")[:1],
            other_user=Exists(others),
            invitation=Exists(Invitation.objects.all()),
        )
        .values("sample", "sample_done", "own_project", "project", "other_user", "invitation")
        .get()
    )
    return {**known, "invited": bool(known["other_user"] or known["invitation"])}


PAGE = 50
#: Tasks that one bulk action changes at most.
MOST_SELECTED = 200
#: What a task's row shows of its pull request.
_OF_PULL_REQUEST = ("kind", "number", "state", "ended_by", "checks")
#: More names than fit into a list help nobody.
_MOST_NAMES = 200


@dataclass(frozen=True)
class Group:
    """A group of tasks in similar phases with its `order`; the dashboard shows the `first` of them.

    `mine`: only those in projects where the person may act, or only the others.
    """

    key: str
    title: str
    phases: tuple[Phase, ...]
    order: tuple[Any, ...] = ("-created_at", "-pk")
    first: int = PAGE
    mine: bool | None = None


_LONGEST_WAITING = (F("asked_at").asc(nulls_last=True), "pk")
#: By phase first, as the index is: it then reads no more tasks than are shown.
_LAST_ENDED = ("-phase", "-ended_at", "-pk")

GROUPS = (
    Group("needs-you", "Needs your answer", (Phase.WAITING_FOR_INPUT,), _LONGEST_WAITING, mine=True),
    Group("failed", "Failed or interrupted", (Phase.FAILED, Phase.INTERRUPTED), _LAST_ENDED),
    Group("running", "Running", (Phase.RUNNING, Phase.WAITING_FOR_RESET)),
    Group("needs-others", "Waiting for input", (Phase.WAITING_FOR_INPUT,), _LONGEST_WAITING, mine=False),
    Group("not-running", "Not running", (Phase.PENDING,), first=5),
    Group("done", "Done", (Phase.DONE,), _LAST_ENDED, first=15),
    Group("cancelled", "Cancelled", (Phase.CANCELLED,), _LAST_ENDED, first=5),
)


@dataclass(frozen=True)
class DashboardFilters:
    """The filters in the URL; unset and invalid ones are empty. `mine`: tasks that the user created."""

    q: str = ""
    project: str = ""
    mine: str = ""

    @classmethod
    def from_request(cls, request: HttpRequest) -> DashboardFilters:
        given = {one.name: storable_text(request.GET.get(one.name, "")).strip()[:200] for one in fields(cls)}
        if given["mine"] != "yes":
            given["mine"] = ""
        return cls(**given)

    def __bool__(self) -> bool:
        return any((self.q, self.project, self.mine))

    @property
    def query(self) -> str:
        """The filters as the query of a URL, after which more may follow: `q=tax&`."""
        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name))}
        return urlencode(given) + "&" * bool(given)

    def visible_tasks(self, principal: Principal) -> TaskQuerySet:
        """Return the matching tasks: each word is in the title or in the folder of the sequence."""
        tasks = tasks_visible_to(principal)
        if self.project:
            tasks = tasks.filter(project__name=self.project)
        if self.mine:
            tasks = tasks.filter(created_by=principal.user)
        for word in self.q.split():
            tasks = tasks.filter(Q(title__icontains=word) | Q(sequence__folder__icontains=word))
        return tasks


@dataclass(frozen=True)
class ListedGroup:
    """A group with its shown tasks and the number of all, as `counted` returns it."""

    group: Group
    tasks: list[Task]
    total: int

    @property
    def total_words(self) -> str:
        return count_words(self.total)

    @property
    def more(self) -> bool:
        return self.total > len(self.tasks)


def dashboard(request: HttpRequest) -> HttpResponse:
    """Show the groups, or with `?group=` one of them with its pages. HTMX gets only the lists."""
    key, filters = request.GET.get("group"), DashboardFilters.from_request(request)
    context = _one_group(request, filters, key) if key else _all_groups(request, filters)
    context["filters"] = filters
    context["actable"] = actable_projects(request)
    tasks = [task for listed in context["groups"] for task in listed.tasks]
    context["activities"] = activities(tasks)
    context["pull_requests"] = {task.pk: row for task in tasks if (row := _pull_request_of(task))}
    if is_htmx(request):
        return render(request, "tasks/dashboard/_groups.html", context)
    context["projects"] = [project.name for project in visible_projects(request)[:_MOST_NAMES]]
    context["first_steps"] = first_steps(current_user(request))
    return render(request, "tasks/dashboard/page.html", context)


@require_POST
def tasks_bulk(request: HttpRequest) -> HttpResponse:
    """Do one action with all selected tasks and say for each of them what was done, or why it was not."""
    principal = principal_of(request)
    selected = filter(None, map(number_from, request.POST.getlist("task")[:MOST_SELECTED]))
    tasks = tasks_visible_to(principal).filter(pk__in=list(selected)).select_related("project").order_by("pk")
    try:
        action = BulkAction(request.POST.get("action", ""))
    except ValueError:
        return redirect("dashboard")
    results = act_on_tasks(tasks, action, by=principal)
    context = {"results": results, "done": sum(one.done for one in results), "said": DONE[action]}
    return render_part_or_page(request, "tasks/dashboard/_bulk.html", "tasks/dashboard/bulk.html", context)


def _all_groups(request: HttpRequest, filters: DashboardFilters) -> dict[str, Any]:
    in_groups = {group.key: _tasks_in_group(request, filters, group) for group in GROUPS}
    counts = counted(current_user(request), in_groups)
    listed = {
        group: list(_ids_in_group(request, filters, group)[: group.first])
        for group in GROUPS
        if counts[group.key]
    }
    tasks = {task.pk: task for task in _load_tasks(chain.from_iterable(listed.values()))}
    groups = [
        ListedGroup(group, [tasks[pk] for pk in ids if pk in tasks], counts[group.key])
        for group, ids in listed.items()
    ]
    context: dict[str, Any] = {"groups": groups, "stuck": list(_failed_sequences(request, filters))}
    if not groups:
        context["has_projects"] = projects_visible_to(principal_of(request)).exists()
    return context


def _failed_sequences(request: HttpRequest, filters: DashboardFilters) -> QuerySet[Sequence]:
    """Return sequences that failed between two tasks, which no task row shows."""
    unfinished = Task.objects.filter(sequence=OuterRef("pk")).exclude(phase=Phase.DONE)
    sequences = sequences_visible_to(principal_of(request)).filter(phase=Phase.FAILED)
    if filters:
        sequences = sequences.filter(pk__in=filters.visible_tasks(principal_of(request)).values("sequence"))
    return sequences.exclude(Exists(unfinished)).select_related("project")[:PAGE]


def _one_group(request: HttpRequest, filters: DashboardFilters, key: str) -> dict[str, Any]:
    group = next((group for group in GROUPS if group.key == key), None)
    if group is None:
        raise Http404(f"There is no group of tasks named “{key}”.")
    total = counted(current_user(request), {key: _tasks_in_group(request, filters, group)})[key]
    ids = _ids_in_group(request, filters, group)
    page: Page[int] = CappedPaginator(ids, PAGE).get_page(request.GET.get("page"))
    listed = ListedGroup(group, _load_tasks(page.object_list), total)
    return {"groups": [listed], "page": page, "group": group}


def _own_projects(request: HttpRequest) -> Q:
    return Q(project__in=projects_actable_by(principal_of(request)).order_by())


def _tasks_in_group(request: HttpRequest, filters: DashboardFilters, group: Group) -> TaskQuerySet:
    tasks = filters.visible_tasks(principal_of(request)).in_phases(*group.phases)
    if group.mine is not None:
        tasks = tasks.filter(_own_projects(request) if group.mine else ~_own_projects(request))
    return tasks


def _ids_in_group(request: HttpRequest, filters: DashboardFilters, group: Group) -> QuerySet[Task, int]:
    """Return the ids of a group's tasks in order."""
    asked_at = Subquery(_oldest_question().values("asked_at")[:1])
    tasks = _tasks_in_group(request, filters, group).annotate(asked_at=asked_at)
    return tasks.order_by(*group.order).values_list("pk", flat=True)


def _load_tasks(numbers: Iterable[int]) -> list[Task]:
    """Return these tasks with steps, oldest open question, newest pull request and who cancelled them."""
    newest = PullRequest.objects.filter(task=OuterRef("pk")).order_by("-pk")
    rows = Task.objects.select_related("project", "sequence").defer("text", "body")
    rows = rows.prefetch_related(shown_steps()).annotate(
        question_items=Subquery(_oldest_question().values("items")[:1]),
        asked_at=Subquery(_oldest_question().values("asked_at")[:1]),
        cancelled_by=_cancelled_by(),
        **{f"pull_request_{name}": Subquery(newest.values(name)[:1]) for name in _OF_PULL_REQUEST},
    )
    return rows_in_order(rows, list(numbers))


def _pull_request_of(task: Any) -> PullRequest | None:
    """Return what a row shows of the newest pull request, from the query that loaded the task."""
    values = {name: getattr(task, f"pull_request_{name}") for name in _OF_PULL_REQUEST}
    return PullRequest(**values) if values["number"] is not None else None


def _oldest_question() -> QuerySet[Question]:
    """Return the oldest open question of a task."""
    return Question.objects.open().filter(task=OuterRef("pk")).order_by("asked_at", "pk")


def _cancelled_by() -> Subquery:
    """Return who cancelled a cancelled task last, as User.shown_name is."""
    full_name = NullIf(Trim(Concat("actor__first_name", Value(" "), "actor__last_name")), Value(""))
    of_task = Transition.objects.filter(
        task=OuterRef("pk"), task__phase=Phase.CANCELLED, step=None, target=Phase.CANCELLED
    )
    return Subquery(of_task.order_by("-pk").values(name=Coalesce(full_name, "actor__username"))[:1])


MOST_TILES = 50


def live(request: HttpRequest) -> HttpResponse:
    return render(request, "tasks/live/page.html", _running(request))


def live_running(request: HttpRequest) -> HttpResponse:
    return render(request, "tasks/live/_running.html", _running(request))


def _running(request: HttpRequest) -> dict[str, object]:
    tasks = tasks_visible_to(principal_of(request)).in_phases(Phase.RUNNING).select_related("project")
    newest = tasks.defer("text", "body").prefetch_related(shown_steps()).order_by("-started_at", "-pk")
    found = list(activities(newest[: MOST_TILES + 1]).values())
    # The newest are at the end: a task that begins moves none of the others.
    return {"running": found[:MOST_TILES][::-1], "more": len(found) > MOST_TILES}


def queue(request: HttpRequest) -> HttpResponse:
    return render(request, "tasks/queue/page.html", _waiting(request))


def queue_waiting(request: HttpRequest) -> HttpResponse:
    return render(request, "tasks/queue/_waiting.html", _waiting(request))


def _waiting(request: HttpRequest) -> dict[str, object]:
    principal, found = principal_of(request), Queue()
    entries = found.seen_by(principal)
    seen = found.count_seen_by(principal)
    return {
        "queue": found,
        "slots": found.slots,
        "entries": entries,
        "more": seen - len(entries),
        "others": max(found.waiting - seen, 0),
        "actable": set(projects_actable_by(principal).values_list("pk", flat=True)),
        "priorities": Priority,
    }

"""The list of projects, and adding one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Count, F, Max, Q, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed
from tasks_app.core.phases import ENDED, Phase
from tasks_app.history.days import split_days
from tasks_app.models import DayFigures, Membership, Project, Role, Task, User
from tasks_app.permissions import projects_visible_to
from tasks_app.services.projects.projects import add_project_meanwhile
from tasks_app.web.forms.add_project import AddProjectForm
from tasks_app.web.pages.access import principal_of

PAGE = 100
_ENDED_TASKS = F("tasks_done") + F("tasks_finished_early") + F("tasks_failed") + F("tasks_cancelled")


@dataclass(frozen=True)
class ProjectRow:
    """A project in the list, with its tasks by state."""

    project: Project
    role: str
    waiting: int = 0
    running: int = 0
    failed: int = 0
    total: int = 0
    last: datetime | None = None


@require_http_methods(["GET", "POST"])
def projects(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return _render_page(request, AddProjectForm())
    form = AddProjectForm(request.POST)
    project = _add(request, form)
    return _render_page(request, form, status=400) if project is None else redirect("project", project.pk)


def _add(request: HttpRequest, form: AddProjectForm) -> Project | None:
    """Add the project; return None and add a form error if it was refused."""
    if not principal_of(request).is_site_admin:
        raise PermissionDenied("Only a site admin can add a project.")
    if not form.is_valid():
        return None
    given = form.cleaned_data
    try:
        return add_project_meanwhile(given["name"], given["source"], by=principal_of(request))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        form.add_error(
            "name" if isinstance(error, BadInput) and error.where == "project" else "source", str(error)
        )
        return None


def _render_page(request: HttpRequest, form: AddProjectForm, *, status: int = 200) -> HttpResponse:
    principal = principal_of(request)
    page = Paginator(projects_visible_to(principal), PAGE).get_page(request.GET.get("page"))
    context = {"rows": _project_rows(list(page), principal.user), "page": page, "form": form}
    return render(request, "projects/list.html", context, status=status)


def _project_rows(found: list[Project], user: User) -> list[ProjectRow]:
    roles = dict(Membership.objects.filter(user=user, project__in=found).values_list("project", "role"))
    metrics = _task_counts(found)
    other = "site admin" if user.is_superuser else ""
    return [
        ProjectRow(one, Role(roles[one.pk]).value if one.pk in roles else other, **metrics.get(one.pk, {}))
        for one in found
    ]


def _task_counts(found: list[Project]) -> dict[int, dict[str, Any]]:
    """Return numbers of tasks and the last change by project id: three counts that are added up."""
    days = split_days()
    sums = DayFigures.objects.filter(days.with_sums(), project__in=found).order_by().values("project")
    of_days = sums.annotate(failed=Sum("tasks_failed"), total=Sum(_ENDED_TASKS), last=Max("last_end"))
    # Of all projects: with a list of them SQLite would read all of their tasks, not those of a few days.
    recent = Task.objects.filter(days.without_sums("created_at"), ended_at__isnull=False)
    ended = (
        recent.order_by()
        .values("project")
        .annotate(failed=_number_in(Phase.FAILED), total=Count("pk"), last=Max("ended_at"))
    )
    tasks = Task.objects.filter(project__in=found).order_by().values("project")
    unfinished = tasks.filter(phase__in=[phase for phase in Phase if phase not in ENDED]).annotate(
        waiting=_number_in(Phase.WAITING_FOR_INPUT),
        running=_number_in(Phase.RUNNING, Phase.WAITING_FOR_RESET),
        failed=_number_in(Phase.INTERRUPTED),
        total=Count("pk"),
        last=Max(Coalesce("started_at", "created_at")),
    )
    counts: dict[int, dict[str, Any]] = defaultdict(dict)
    rows: Iterable[Any] = chain(of_days, ended, unfinished)
    for row in rows:
        _include(counts[row["project"]], row)
    return counts


def _number_in(*phases: Phase) -> Count:
    return Count("pk", filter=Q(phase__in=phases))


def _include(counts: dict[str, Any], more: dict[str, Any]) -> None:
    """Add numbers to numbers; of the last changes keep the latest."""
    for name, value in more.items():
        if name == "last":
            counts[name] = max(filter(None, (value, counts.get(name))), default=None)
        elif name != "project":
            counts[name] = counts.get(name, 0) + value

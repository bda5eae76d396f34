"""The list of projects, and adding one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Count, Max, Q
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tasks_app.core.errors import BadInput, CatHerderError, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.models import Membership, Project, Role, Task, User
from tasks_app.permissions import projects_visible_to
from tasks_app.services.projects import add_project_meanwhile
from tasks_app.web.forms.add_project import AddProjectForm
from tasks_app.web.pages.access import principal_of

PAGE = 100


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
    """Return numbers of tasks and the last change by project id."""
    rows = (
        Task.objects.filter(project__in=found)
        .order_by()
        .values("project")
        .annotate(
            waiting=Count("pk", filter=Q(phase=Phase.WAITING_FOR_INPUT)),
            running=Count("pk", filter=Q(phase__in=[Phase.RUNNING, Phase.WAITING_FOR_RESET])),
            failed=Count("pk", filter=Q(phase__in=[Phase.FAILED, Phase.INTERRUPTED])),
            total=Count("pk"),
            last=Max(Coalesce("ended_at", "started_at", "created_at")),
        )
    )
    return {int(row["project"]): {k: v for k, v in row.items() if k != "project"} for row in rows}

"""The list of projects, adding one, and the page of a project."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Count, F, Max, Q, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tasks_app.config.threshold import LEVELS, NEW_PROJECT
from tasks_app.core.errors import BadInput, BranchMissing, CatHerderError, NotAllowed, SandboxUnavailable
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import DayFigures, Membership, Project, Task
from tasks_app.models.phased import shown_in
from tasks_app.models.project import NAME
from tasks_app.models.task import lost_its_worker
from tasks_app.operations import local_sandbox
from tasks_app.permissions import may_maintain, projects_visible_to
from tasks_app.sandbox import EnforcedLimit
from tasks_app.services.projects.projects import add_project_meanwhile, fetch_meanwhile
from tasks_app.services.usage.cost_limits import budget_of
from tasks_app.services.usage.day_sums import split_days
from tasks_app.web.access import may_act, principal_of, project_or_404
from tasks_app.web.projects.at_head import ProjectAtHead, at_head
from tasks_app.web.task_rows import of_rows, rows_of_tasks


class AddProjectForm(forms.Form):
    """A name and a source. The service checks whether there is a repository at the source."""

    name = forms.CharField(
        max_length=60,
        validators=[NAME],
        widget=forms.TextInput(
            attrs={"placeholder": "billing", "autocomplete": "off", "pattern": r"[a-z0-9][a-z0-9._\-]*"}
        ),
        error_messages={"required": "Enter a name."},
    )
    source = forms.CharField(
        max_length=500,
        widget=forms.TextInput(
            attrs={
                "placeholder": "/srv/git/billing or git@example.org:team/billing.git",
                "autocomplete": "off",
                "spellcheck": "false",
            }
        ),
        error_messages={"required": "Enter a folder, or an https or ssh URL."},
    )

    threshold = forms.TypedChoiceField(
        coerce=int,
        choices=[(level, f"{level}: {sentence}") for level, sentence in LEVELS.items()],
        initial=NEW_PROJECT,
        required=False,
    )

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if Project.objects.filter(name=name).exists():
            raise forms.ValidationError("There is already a project with this name.")
        return name


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
    if not principal_of(request).is_site_admin:
        raise PermissionDenied("Only a site admin can add a project.")
    form = AddProjectForm(request.POST)
    if not form.is_valid():
        return _render_page(request, form, status=400)
    given = form.cleaned_data
    try:
        by, threshold = principal_of(request), given["threshold"]
        if threshold == "":
            threshold = NEW_PROJECT
        project = add_project_meanwhile(given["name"], given["source"], by=by, threshold=threshold)
    except NotAllowed:
        raise
    except CatHerderError as error:
        if isinstance(error, BadInput) and error.where == "project":
            form.add_error("name", error.message)
        else:
            form.add_error("source", str(error))
        return _render_page(request, form, status=400)
    return redirect("project", project.pk)


def _render_page(request: HttpRequest, form: AddProjectForm, *, status: int = 200) -> HttpResponse:
    principal = principal_of(request)
    page = Paginator(projects_visible_to(principal), PAGE).get_page(request.GET.get("page"))
    found, user = list(page), principal.user
    roles = dict(Membership.objects.filter(user=user, project__in=found).values_list("project", "role"))
    counts = _task_counts(found)
    other = "site admin" if user.is_superuser else ""
    rows = [ProjectRow(one, roles.get(one.pk, other), **counts.get(one.pk, {})) for one in found]
    context = {"rows": rows, "page": page, "form": form}
    return render(request, "projects/list.html", context, status=status)


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
        of_project = counts[row["project"]]
        for name, value in row.items():
            if name == "last":
                of_project[name] = max(filter(None, (value, of_project.get(name))), default=None)
            elif name != "project":
                of_project[name] = of_project.get(name, 0) + value
    return counts


def _number_in(*phases: Phase) -> Count:
    return Count("pk", filter=shown_in(phases, lost=lost_its_worker()))


_RECENT = 8


def project(request: HttpRequest, project_id: int) -> HttpResponse:
    """The repository is read as the portal last fetched it: a page must not wait for a network."""
    found = project_or_404(request, project_id)
    head, trouble, lacks_branch = _head(found)
    counts = _tasks_by_phase(found)
    newest = found.tasks.order_by("-created_at", "-pk").values_list("pk", flat=True)
    recent = rows_of_tasks(list(newest[:_RECENT]))
    context = {
        "project": found,
        "head": head,
        "trouble": trouble,
        "lacks_branch": lacks_branch,
        "may_maintain": lacks_branch and may_maintain(principal_of(request), found),
        "may_act": may_act(request, found),
        "limits": _limits(),
        "budget": budget_of(found),
        "decisions_active": found.decisions.active().count(),
        "decisions_to_review": found.decisions.to_review().count(),
        "phases": [(Task(project=found, phase=one), counts[one]) for one in Phase if counts.get(one)],
        "recent": recent,
        **of_rows(request, recent),
    }
    return render(request, "projects/page.html", context)


@require_POST
def project_fetch(request: HttpRequest, project_id: int) -> HttpResponse:
    found = project_or_404(request, project_id)
    fetch_meanwhile(found, by=principal_of(request))
    found.refresh_from_db()
    if not found.is_fetching and not found.fetch_fault:
        messages.success(request, "Fetched.")
    return redirect("project", project_id)


def _head(found: Project) -> tuple[ProjectAtHead | None, str, bool]:
    """Return the project at its newest commit, or why it cannot be read; and whether it lacks its branch."""
    try:
        return at_head(found), "", False
    except CatHerderError as error:
        trouble = str(error)
        if found.fetch_fault.startswith(trouble):  # and also says which branch is the default one
            trouble = found.fetch_fault
        return None, trouble, isinstance(error, BranchMissing)


def _limits() -> tuple[EnforcedLimit, ...]:
    """Return how limits are enforced here; empty if nothing may run."""
    try:
        return local_sandbox.enforced_limits()
    except SandboxUnavailable:
        return ()


def _tasks_by_phase(found: Project) -> dict[str, int]:
    """Count those that have ended from the sums of days, and the others one by one."""
    days = split_days()
    unfinished = Q(phase__in=[phase for phase in Phase if phase not in ENDED])
    tasks = found.tasks.filter(unfinished | days.without_sums("created_at"))
    counts = defaultdict(int, tasks.count_by_phase())
    sums = DayFigures.objects.filter(days.with_sums(), project=found).aggregate(
        done=Sum(F("tasks_done") + F("tasks_finished_early")),
        failed=Sum("tasks_failed"),
        cancelled=Sum("tasks_cancelled"),
    )
    for phase, number in sums.items():
        counts[phase] += number or 0
    return counts

"""A project's overview: source, tasks, pipelines and problems."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, F, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from tasks_app.core.errors import CatHerderError, NotAllowed, SandboxUnavailable
from tasks_app.core.phases import ENDED, Phase
from tasks_app.history.days import split_days
from tasks_app.models import DayFigures, Project, Task
from tasks_app.operations import local_sandbox
from tasks_app.sandbox import EnforcedLimit
from tasks_app.services.costs.budgets import budget_of
from tasks_app.services.projects.fetching import fetch_meanwhile
from tasks_app.web.pages.access import may_act, principal_of, project_or_404
from tasks_app.web.pages.activity import shown_steps
from tasks_app.web.pages.project_at_head import ProjectAtHead, at_head

_RECENT = 8


def project(request: HttpRequest, project_id: int) -> HttpResponse:
    """The repository is read as the portal last fetched it: a page must not wait for a network."""
    found = project_or_404(request, project_id)
    head, trouble = _head(found)
    context = {
        "project": found,
        "head": head,
        "trouble": trouble,
        "may_act": may_act(request, found),
        "limits": _limits(),
        "budget": budget_of(found),
        "decisions_active": found.decisions.active().count(),
        "decisions_to_review": found.decisions.to_review().count(),
        **_tasks_context(found),
    }
    return render(request, "projects/page.html", context)


@require_POST
def project_fetch(request: HttpRequest, project_id: int) -> HttpResponse:
    found = project_or_404(request, project_id)
    try:
        fetch_meanwhile(found, by=principal_of(request))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    found.refresh_from_db()
    if not found.is_fetching and not found.fetch_fault:
        messages.success(request, "Fetched.")
    return redirect("project", project_id)


def _head(found: Project) -> tuple[ProjectAtHead | None, str]:
    try:
        return at_head(found), ""
    except CatHerderError as error:
        return None, str(error)


def _limits() -> tuple[EnforcedLimit, ...]:
    """Return how limits are enforced here; empty if nothing may run."""
    try:
        return local_sandbox.enforced_limits()
    except SandboxUnavailable:
        return ()


def _tasks_context(found: Project) -> dict[str, Any]:
    """Return the number of tasks by phase, and the newest tasks."""
    counts = _tasks_by_phase(found)
    recent = found.tasks.select_related("project", "created_by").defer("text", "body")
    recent = recent.prefetch_related(shown_steps())
    return {
        "phases": [(Task(project=found, phase=one), counts[one]) for one in Phase if counts.get(one)],
        "recent": list(recent[:_RECENT]),
    }


def _tasks_by_phase(found: Project) -> dict[str, int]:
    """Count those that have ended from the sums of days, and the others one by one."""
    days = split_days()
    unfinished = Q(phase__in=[phase for phase in Phase if phase not in ENDED])
    tasks = found.tasks.filter(unfinished | days.without_sums("created_at"))
    counts = defaultdict(int, tasks.order_by().values_list("phase").annotate(Count("pk")))
    sums = DayFigures.objects.filter(days.with_sums(), project=found).aggregate(
        done=Sum(F("tasks_done") + F("tasks_finished_early")),
        failed=Sum("tasks_failed"),
        cancelled=Sum("tasks_cancelled"),
    )
    for phase, number in sums.items():
        counts[phase] += number or 0
    return counts

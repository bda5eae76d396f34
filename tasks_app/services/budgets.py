"""A project's budget for the calendar month in UTC: what was spent of it, and who waits for the next (M8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import Sum
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import Project, Run, Task


def month_start(at: datetime) -> datetime:
    return datetime(at.astimezone(UTC).year, at.astimezone(UTC).month, 1, tzinfo=UTC)


def next_month(at: datetime) -> datetime:
    """Return when the month after this time begins."""
    return month_start(month_start(at) + timedelta(days=31))


def spent_this_month(project: Project) -> float:
    """Return the dollars of the project's runs that started in this month."""
    runs = Run.objects.filter(step__task__project=project, started_at__gte=month_start(timezone.now()))
    return float(runs.order_by().aggregate(spent=Sum("cost_usd"))["spent"] or 0.0)


def is_used_up(project: Project) -> bool:
    """Return whether no run may begin: the project has spent its budget for this month."""
    budget = project.monthly_budget_usd
    return budget is not None and spent_this_month(project) >= budget


def end_waits_for_budgets() -> None:
    """Make tasks due that wait for the budget of a project that has some again, however it came to it."""
    waiting = Task.objects.filter(phase=Phase.WAITING_FOR_RESET, waits_for_budget=True)
    for project in Project.objects.filter(pk__in=waiting.order_by().values("project")):
        if not is_used_up(project):
            waiting.filter(project=project, resets_at__gt=Now()).update(resets_at=Now())

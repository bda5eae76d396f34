"""Budgets of projects and people for the calendar month in UTC: what is spent, and whose wait ends (M8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.dollars import dollars
from tasks_app.core.phases import Phase
from tasks_app.history.days import split_days
from tasks_app.models import ModelUsage, PersonUsage, Project, Run, Task, User

#: Sums of the same costs in another order differ by less than this.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Budget:
    """The dollars of a project or a person for this month, and how many of them are spent."""

    dollars: float
    spent: float

    @property
    def is_used_up(self) -> bool:
        """Whether no run may begin."""
        return self.left <= _ROUNDING

    @property
    def left(self) -> float:
        """Dollars that are left; negative if more was spent."""
        return self.dollars - self.spent


@dataclass(frozen=True)
class Budgets:
    """The budgets that limit what one person's tasks in one project cost; None where there is none."""

    project: Budget | None = None
    person: Budget | None = None

    @property
    def left(self) -> float | None:
        """Dollars that are left of the tightest budget; None if nothing limits them."""
        return min((one.left for one in (self.project, self.person) if one), default=None)

    @property
    def problem(self) -> str:
        """Which budget is spent, in a sentence; empty if runs may begin."""
        if self.project and self.project.is_used_up:
            return f"The project has spent its budget for this month ({dollars(self.project.dollars)})."
        if self.person and self.person.is_used_up:
            spent = dollars(self.person.dollars)
            return f"The person who created the task has spent their budget for this month ({spent})."
        return ""


def month_start(at: datetime) -> datetime:
    """Return when the calendar month of this time began, in UTC."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(at: datetime) -> datetime:
    """Return when the month after this time begins."""
    return month_start(month_start(at) + timedelta(days=31))


def budget_of(owner: Project | User) -> Budget | None:
    """Return the owner's budget with what runs of this month have cost, or None if they have none.

    A person's budget counts the runs of the tasks that they created, in every project.
    """
    return _budgets([owner], of_projects=isinstance(owner, Project)).get(owner.pk)


def _budgets(owners: Iterable[Project | User], *, of_projects: bool) -> dict[int, Budget]:
    """Return the budgets of those who have one by their ids. Three queries, or none if nobody has."""
    limits = {one.pk: float(one.monthly_budget_usd) for one in owners if one.monthly_budget_usd is not None}
    if not limits:
        return {}
    days = split_days(month_start(timezone.now()).date())
    sums: QuerySet[Any] = (
        ModelUsage.objects.all() if of_projects else PersonUsage.objects.filter(project=None)
    )
    runs = Run.objects.filter(days.without_sums("started_at"))
    spent: dict[int, float] = defaultdict(float)
    for rows, owner in (
        (sums.filter(days.with_sums()), "project" if of_projects else "user"),
        (runs, "step__task__project" if of_projects else "step__task__created_by"),
    ):
        of_owners = rows.filter(**{f"{owner}__in": limits}).order_by().values_list(owner)
        for pk, cost in of_owners.annotate(Sum("cost_usd")):
            spent[pk] += cost
    return {pk: Budget(dollars=limit, spent=spent[pk]) for pk, limit in limits.items()}


def budgets_of(project: Project, user: User | None) -> Budgets:
    """Return the budgets for the tasks that this person creates in the project."""
    return Budgets(project=budget_of(project), person=budget_of(user) if user else None)


def budgets_of_task(task_id: int) -> Budgets:
    """Return the budgets of a task, read anew: somebody may have changed them since it was read."""
    task = Task.objects.select_related("project", "created_by").only("project", "created_by").get(pk=task_id)
    return budgets_of(task.project, task.created_by)


def end_waits_for_budgets() -> None:
    """Make tasks due whose project and creator have some of their budgets left, however they came to it."""
    waiting = Task.objects.filter(
        phase=Phase.WAITING_FOR_RESET, waits_for_budget=True, resets_at__gt=Now()
    ).order_by()
    if not waiting.exists():
        return
    projects = _used_up(Project.objects.filter(pk__in=waiting.values("project")), of_projects=True)
    users = _used_up(User.objects.filter(pk__in=waiting.values("created_by")), of_projects=False)
    waiting.exclude(project__in=projects).exclude(created_by__in=users).update(resets_at=Now())


def _used_up(owners: Iterable[Project | User], *, of_projects: bool) -> list[int]:
    """Return the ids of those who have spent their budget."""
    budgets = _budgets(owners, of_projects=of_projects)
    return [pk for pk, budget in budgets.items() if budget.is_used_up]

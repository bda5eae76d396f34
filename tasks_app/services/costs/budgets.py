"""What tasks, projects and people may still cost, and what one run may (M8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.dollars import dollars
from tasks_app.core.phases import Phase
from tasks_app.history.day_sums import split_days
from tasks_app.models import ModelUsage, PersonUsage, Project, Run, Task, User
from tasks_app.permissions import Principal, may_see_budget_of
from tasks_app.services.costs.soft_limit import dollars_left


def dollars_for_run(task_id: int) -> float | None:
    """Return the dollars that budgets of the month and the soft limit leave over; None if nothing does."""
    left = (budgets_of_task(task_id).left, dollars_left(task_id))
    return min((one for one in left if one is not None), default=None)


def soft_limit_leaves_least(task_id: int) -> bool:
    """Return whether the task has a soft limit, and no budget of the month leaves less than it."""
    left, budget = dollars_left(task_id), budgets_of_task(task_id).left
    return left is not None and (budget is None or left <= budget)


# Budgets of projects and people for the calendar month in UTC: what is spent, and whose wait ends (M8).


#: Sums of the same costs in another order differ by less than this.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Budget:
    """The dollars of a project or a person, its `owner`, for this month, and how many of them are spent."""

    dollars: float
    spent: float
    owner: Project | User | None = field(default=None, compare=False)

    @property
    def is_used_up(self) -> bool:
        """Whether no run may begin."""
        return self.left <= _ROUNDING

    @property
    def left(self) -> float:
        """Dollars that are left; negative if more was spent."""
        return self.dollars - self.spent

    @property
    def month(self) -> str:
        """The name of this month."""
        return f"{timezone.now():%B}"

    def spent_in_words(self, viewer: Principal | None) -> str:
        """Return a sentence that it is spent, with the amounts if the viewer may see them.

        Everybody who sees a task sees the budget of its project. Without a viewer everybody reads it.
        """
        if isinstance(self.owner, User):
            is_own = viewer is not None and viewer.user.pk == self.owner.pk
            name = "Your budget" if is_own else f"The budget of {self.owner.shown_name}"
            shows_amounts = viewer is not None and may_see_budget_of(viewer, self.owner)
        else:
            name, shows_amounts = f"The budget of {self.owner}", True
        amounts = f": {dollars(self.spent)} of {dollars(self.dollars)}" if shows_amounts else ""
        return f"{name} for {self.month} is spent{amounts}."


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
    def is_used_up(self) -> bool:
        """Whether no run may begin."""
        return bool(self._used_up)

    @property
    def _used_up(self) -> list[Budget]:
        return [one for one in (self.project, self.person) if one and one.is_used_up]

    def problem(self, viewer: Principal | None = None) -> str:
        """Return which budgets are spent, in sentences for the viewer; empty if runs may begin."""
        return " ".join(one.spent_in_words(viewer) for one in self._used_up)


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
    having = {one.pk: one for one in owners if one.monthly_budget_usd is not None}
    limits = {pk: float(one.monthly_budget_usd or 0) for pk, one in having.items()}
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
    return {pk: Budget(dollars=limit, spent=spent[pk], owner=having[pk]) for pk, limit in limits.items()}


def budgets_of(project: Project, user: User | None) -> Budgets:
    """Return the budgets for the tasks that this person creates in the project."""
    return Budgets(project=budget_of(project), person=budget_of(user) if user else None)


def budgets_of_task(task_id: int) -> Budgets:
    """Return the budgets of a task, read anew: somebody may have changed them since it was read."""
    task = Task.objects.select_related("project", "created_by").only("project", "created_by").get(pk=task_id)
    return budgets_of(task.project, task.created_by)


def budgets_of_tasks(tasks: Collection[Task]) -> dict[int, Budgets]:
    """Return the budgets of each task by its id. Six queries at most for tasks with project and creator."""
    projects = _budgets({task.project for task in tasks}, of_projects=True)
    users = _budgets({task.created_by for task in tasks if task.created_by}, of_projects=False)
    return {
        task.pk: Budgets(projects.get(task.project_id), users.get(task.created_by_id or 0)) for task in tasks
    }


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
    """Return the ids of users who have spent their budget."""
    budgets = _budgets(owners, of_projects=of_projects)
    return [pk for pk, budget in budgets.items() if budget.is_used_up]

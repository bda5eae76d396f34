"""JSON models of what a new task is likely to cost, and of the budgets that limit it (M8)."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.models import Project, Task, User
from tasks_app.reporting.forecast import FEWEST, Forecast, Spread, forecasts
from tasks_app.reporting.schemas.base import Out
from tasks_app.services.costs.budgets import Budget, budgets_of


class SpreadOut(Out):
    """A median, and what nine of ten values do not exceed."""

    median: float = Field(description="The median.")
    p90: float = Field(description="What nine of ten do not exceed.")

    @classmethod
    def of(cls, spread: Spread) -> Self:
        return cls(median=spread.median, p90=spread.p90)


class ForecastOut(Out):
    """What done tasks of the same pipeline in this project have cost, and how long they have worked."""

    tasks: int = Field(description="The number of done tasks that were looked at.")
    cost_usd: SpreadOut | None = Field(
        description=f"US dollars of each; null with fewer than {FEWEST} done tasks."
    )
    working_seconds: SpreadOut | None = Field(
        description=f"Seconds from start to end without pauses; null with fewer than {FEWEST} done tasks."
    )

    @classmethod
    def of(cls, forecast: Forecast) -> Self:
        return cls(
            tasks=forecast.tasks,
            cost_usd=SpreadOut.of(forecast.cost) if forecast.cost else None,
            working_seconds=SpreadOut.of(forecast.working) if forecast.working else None,
        )


class BudgetOut(Out):
    """A budget for this calendar month in UTC."""

    budget_usd: float = Field(description="US dollars that the month may cost.")
    spent_usd: float = Field(description="US dollars that it has cost.")
    left_usd: float = Field(description="US dollars that are left; negative if more was spent.")
    used_up: bool = Field(description="Whether no run may begin until next month or a higher budget.")

    @classmethod
    def of(cls, budget: Budget) -> Self:
        return cls(
            budget_usd=budget.dollars,
            spent_usd=budget.spent,
            left_usd=budget.left,
            used_up=budget.is_used_up,
        )


class BudgetsOut(Out):
    """The budgets that limit the task."""

    project: BudgetOut | None = Field(description="That of its project; null without one.")
    person: BudgetOut | None = Field(description="That of the person who creates it; null without one.")


class HasForecast(Out):
    """What is known of a task's cost before its first run."""

    forecast: ForecastOut = Field(description="What done tasks of the same pipeline have cost and taken.")
    budgets: BudgetsOut = Field(description="What is left of the budgets that limit the task.")


def forecast_for(project: Project, *, pipeline: str, user: User | None) -> HasForecast:
    """Return what is known of the cost of a task that this person creates in the project."""
    budgets = budgets_of(project, user)
    return HasForecast(
        forecast=ForecastOut.of(forecasts(project).get(pipeline, Forecast())),
        budgets=BudgetsOut(
            project=BudgetOut.of(budgets.project) if budgets.project else None,
            person=BudgetOut.of(budgets.person) if budgets.person else None,
        ),
    )


def forecast_of(task: Task) -> HasForecast:
    """Return what is known of the cost of a task that was just created."""
    return forecast_for(task.project, pipeline=task.pipeline, user=task.created_by)

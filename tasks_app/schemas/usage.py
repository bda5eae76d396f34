"""JSON models of usage, forecasts and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from pydantic import Field

from tasks_app.core.types import Usage
from tasks_app.models import Project, Task, User
from tasks_app.schemas.base import HasUsage, Out, Seconds, UsageOut
from tasks_app.services.usage.answer_times import MOST_QUESTIONS, AnswerTimes
from tasks_app.services.usage.cost_limits import budgets_of
from tasks_app.services.usage.statistics import FEWEST, Forecast, forecasts
from tasks_app.services.usage.usage import By, Period, QuestionFigures, UsageInPeriod, WaitingTimes


class Part(UsageOut):
    name: str = Field(description="The model, project or login; empty if it is not known.")


class DayPart(Part):
    day: date = Field(description="The day, in UTC, as in 2026-03-01.")


class Waited(Out):
    """Waiting times of tasks that were created and questions that were asked in the period."""

    tasks: int = Field(description="Tasks that were begun.")
    working_seconds: Seconds = Field(validation_alias="working", description="Agents and checks at work.")
    paused_seconds: Seconds = Field(
        validation_alias="paused",
        description="Waiting for people, for usage limits, and then for a worker.",
    )
    questions: int = Field(description="Questions that were asked.")
    answered: int = Field(description="Questions that were answered, dismissed or decided.")
    median_seconds: Seconds | None = Field(
        validation_alias="median",
        description="How soon half of them were, of the newest 1,000; null if none was.",
    )


class TimingOut(Out):
    """Questions of done tasks that were asked in one share of the task's working time."""

    share: str = Field(description="The share, such as “First 10 %”.")
    before_work: int = Field(description="In the questions before work.")
    late: int = Field(description="About the goal, after work had begun.")
    others: int = Field(description="All others.")


class QuestionsAsked(Out):
    """When agents asked in the period, and what it brought: clarifications, one for each card."""

    questions: int = Field(description="Questions that were asked.")
    before_work: int = Field(description="Questions before work.")
    tasks_before_work: int = Field(description="Tasks with questions before work.")
    late: int = Field(description="Questions about the goal, after work had begun.")
    timings: list[TimingOut] = Field(description="When questions of done tasks were asked.")
    recommended: int = Field(description="Answered items that recommended an option.")
    recommended_taken: int = Field(description="Items that were answered with that option.")
    compared: int = Field(description="Questions that were compared with earlier ones of their project.")
    asked_before: int = Field(description="Questions with an item that had been asked before.")


class WaitsOut(Out):
    """How long questions waited that have one thing in common, by the clock."""

    name: str = Field(description="What they have in common.")
    answered: int = Field(description="Questions that people answered, decided or skipped.")
    open: int = Field(description="Questions that still wait.")
    median_seconds: Seconds | None = Field(
        validation_alias="seconds.median", description="How soon half of the answers came; null without one."
    )
    p90_seconds: Seconds | None = Field(
        validation_alias="seconds.p90", description="How soon nine of ten answers came; null without one."
    )


class AnswerTimesOut(Out):
    """How long the questions of the period waited for people."""

    total: WaitsOut = Field(description="All of them; the name is empty.")
    nobody_asked: int = Field(
        description="Questions that were put to all who may answer, because nothing names anybody."
    )
    ended_by_rule: int = Field(
        description="Questions that a rule ended because nobody had answered; they are in no other figure."
    )
    is_cut: bool = Field(description=f"Whether only the newest {MOST_QUESTIONS:,} are looked at.")
    kinds: list[WaitsOut] = Field(description="By the kind of question.")
    steps: list[WaitsOut] = Field(description="By step, the most questions first.")
    people: list[WaitsOut] = Field(
        description="By the user name of each who was asked, also if it was handed over later; empty: nobody "
        "in particular."
    )
    rungs: list[WaitsOut] = Field(
        validation_alias="stages",
        description="By the rung of the ladder on which it was answered, or is now: `at_once`, `reminded`, "
        "`everybody`.",
    )


class UsageReport(HasUsage):
    """Usage in a period. `since` and `until` are days in UTC, both included."""

    since: date = Field(description="The first day.")
    until: date = Field(description="The last day.")
    before: UsageOut = Field(description="The same of the period of that length before it.")
    models: list[Part] = Field(description="By model.")
    projects: list[Part] = Field(description="By project.")
    people: list[Part] = Field(description="By the user who created the task.")
    days: list[DayPart] = Field(description="By day and by `by`; days without usage are left out.")
    waited: Waited = Field(description="How long was worked and waited.")
    asked: QuestionsAsked = Field(description="When questions came, and what they brought.")
    answer_times: AnswerTimesOut = Field(description="How long questions waited, and for whom.")


def usage_report(
    period: Period, spent: UsageInPeriod, waited: WaitingTimes, asked: QuestionFigures, times: AnswerTimes
) -> UsageReport:
    parts = {
        by: [Part.from_row(usage, name=name) for name, usage in most_expensive_first(of)]
        for by, of in spent.parts.items()
    }
    return UsageReport.from_row(
        period,
        **dict(UsageOut.from_row(spent.total)),
        before=spent.before,
        models=parts[By.MODEL],
        projects=parts[By.PROJECT],
        people=parts[By.USER],
        days=[
            DayPart.from_row(usage, name=name, day=day)
            for day, of_day in sorted(spent.by_day.items())
            for name, usage in sorted(of_day.items())
        ],
        waited=waited,
        asked=asked,
        answer_times=times,
    )


def most_expensive_first(parts: Mapping[str, Usage]) -> list[tuple[str, Usage]]:
    return sorted(parts.items(), key=lambda part: (-part[1].cost_usd, part[0]))


class UsageOfAllRuns(Out):
    """Output of `cat-herder stats --json`."""

    by: str = Field(description="model, user or project.")
    total: UsageOut = Field(description="All together.")
    parts: dict[str, UsageOut] = Field(description="By name, the most expensive first.")


class SpreadOut(Out):
    """A median, and what nine of ten values do not exceed."""

    median: float = Field(description="The median.")
    p90: float = Field(description="What nine of ten do not exceed.")


class ForecastOut(Out):
    """What done tasks of the same pipeline in this project have cost, and how long they have worked."""

    tasks: int = Field(description="The number of done tasks that were looked at.")
    cost_usd: SpreadOut | None = Field(
        validation_alias="cost", description=f"US dollars of each; null with fewer than {FEWEST} done tasks."
    )
    working_seconds: SpreadOut | None = Field(
        validation_alias="working",
        description=f"Seconds from start to end without pauses; null with fewer than {FEWEST} done tasks.",
    )


class BudgetOut(Out):
    """A budget for this calendar month in UTC."""

    budget_usd: float = Field(validation_alias="dollars", description="US dollars that the month may cost.")
    spent_usd: float = Field(validation_alias="spent", description="US dollars that it has cost.")
    left_usd: float = Field(
        validation_alias="left", description="US dollars that are left; negative if more was spent."
    )
    used_up: bool = Field(
        validation_alias="is_used_up",
        description="Whether no run may begin until next month or a higher budget.",
    )


class BudgetsOut(Out):
    """The budgets that limit the task."""

    project: BudgetOut | None = Field(description="The project's budget; null without one.")
    person: BudgetOut | None = Field(description="The creator's budget; null without one.")


class HasForecast(Out):
    """What is known of a task's cost before its first run."""

    forecast: ForecastOut = Field(description="What done tasks of the same pipeline have cost and taken.")
    budgets: BudgetsOut = Field(description="What is left of the budgets that limit the task.")


def forecast_for(project: Project, *, pipeline: str, user: User | None) -> HasForecast:
    """Return what is known of the cost of a task that this person creates in the project."""
    budgets = BudgetsOut.from_row(budgets_of(project, user))
    forecast = ForecastOut.from_row(forecasts(project).get(pipeline, Forecast()))
    return HasForecast(forecast=forecast, budgets=budgets)


def forecast_of(task: Task) -> HasForecast:
    """Return what is known of the cost of a task that was just created."""
    return forecast_for(task.project, pipeline=task.pipeline, user=task.created_by)

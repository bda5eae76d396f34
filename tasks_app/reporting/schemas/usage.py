"""JSON models of usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from typing import Self

from pydantic import Field

from tasks_app.core.types import Usage
from tasks_app.history.statistics import By
from tasks_app.reporting.question_figures import QuestionFigures
from tasks_app.reporting.schemas.base import HasUsage, Out, UsageOut, usage_fields
from tasks_app.reporting.usage import Period, UsageInPeriod, WaitingTimes


class Part(UsageOut):
    name: str = Field(description="The model, project or login; empty if it is not known.")


class DayPart(Part):
    day: date = Field(description="The day, in UTC, as in 2026-03-01.")


class Waited(Out):
    """Waiting times of tasks that were created and questions that were asked in the period."""

    tasks: int = Field(description="Tasks that were begun.")
    working_seconds: float = Field(description="Agents and checks at work.")
    paused_seconds: float = Field(description="Waiting for people and for usage limits.")
    questions: int = Field(description="Questions that were asked.")
    answered: int = Field(description="Those that were answered, dismissed or decided.")
    median_seconds: float | None = Field(
        description="How soon half of them were, of the newest 1,000; null if none was."
    )

    @classmethod
    def of(cls, waited: WaitingTimes) -> Self:
        return cls(
            tasks=waited.tasks,
            working_seconds=round(waited.working, 3),
            paused_seconds=round(waited.paused, 3),
            questions=waited.questions,
            answered=waited.answered,
            median_seconds=None if waited.median is None else round(waited.median, 3),
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
    before_work: int = Field(description="Those before work.")
    tasks_before_work: int = Field(description="The tasks of those before work.")
    late: int = Field(description="Those about the goal, after work had begun.")
    timings: list[TimingOut] = Field(description="When those of done tasks were asked.")
    recommended: int = Field(description="Answered items that recommended an option.")
    recommended_taken: int = Field(description="Those answered with it.")
    compared: int = Field(description="Questions that were compared with earlier ones of their project.")
    asked_before: int = Field(description="Those of which an item had been asked before.")

    @classmethod
    def of(cls, figures: QuestionFigures) -> Self:
        return cls.model_validate(asdict(figures))


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

    @classmethod
    def of_period(
        cls, period: Period, spent: UsageInPeriod, waited: WaitingTimes, asked: QuestionFigures
    ) -> Self:
        return cls(
            since=period.since,
            until=period.until,
            **usage_fields(spent.total),
            before=UsageOut.of(spent.before),
            models=_by_name(spent.parts[By.MODEL]),
            projects=_by_name(spent.parts[By.PROJECT]),
            people=_by_name(spent.parts[By.USER]),
            days=[
                DayPart.of(usage, name=name, day=day)
                for day, parts in sorted(spent.by_day.items())
                for name, usage in sorted(parts.items())
            ],
            waited=Waited.of(waited),
            asked=QuestionsAsked.of(asked),
        )


def _by_name(parts: Mapping[str, Usage]) -> list[Part]:
    return [Part.of(usage, name=name) for name, usage in most_expensive_first(parts)]


def most_expensive_first(parts: Mapping[str, Usage]) -> list[tuple[str, Usage]]:
    return sorted(parts.items(), key=lambda part: (-part[1].cost_usd, part[0]))


class UsageOfAllRuns(Out):
    """Output of `manage.py stats --json`."""

    by: str = Field(description="model, user or project.")
    total: UsageOut = Field(description="All together.")
    parts: dict[str, UsageOut] = Field(description="By name, the most expensive first.")

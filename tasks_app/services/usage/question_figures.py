"""When questions of agents came in a period, and what they brought (SPEC D8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tasks_app.history.day_sums import OF_CLARIFICATIONS, SHARES, split_days, with_share
from tasks_app.models import DayFigures, Question
from tasks_app.permissions import Principal
from tasks_app.services.usage.usage import Period, add_figures, figures_of_days, in_visible_projects, sums_of

COLUMNS = ["figure", "part", "count", "of"]


@dataclass(frozen=True)
class Timing:
    """The questions that were asked in one share of the working time of their tasks."""

    share: str
    before_work: int = 0
    late: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        return self.before_work + self.late + self.others


@dataclass(frozen=True)
class QuestionFigures:
    """Figures of the clarifications that agents asked in a period: `questions` cards.

    `before_work` and `late` count those about the goal; `tasks_before_work` are the tasks that asked before
    work: more cards than tasks mean that some did not ask all at once. `timings` count those of done tasks.
    `recommended` are the answered items that recommended an option. `compared` are the questions that were
    looked for among earlier ones of their project, `asked_before` those of which an item was found.
    """

    questions: int = 0
    before_work: int = 0
    tasks_before_work: int = 0
    late: int = 0
    timings: tuple[Timing, ...] = field(default=())
    recommended: int = 0
    recommended_taken: int = 0
    compared: int = 0
    asked_before: int = 0

    @property
    def others(self) -> int:
        return self.questions - self.before_work - self.late

    @property
    def timed(self) -> int:
        return sum(timing.total for timing in self.timings)

    @property
    def percent_taken(self) -> int | None:
        """Per cent of the recommendations that were taken; None if there was none."""
        return round(100 * self.recommended_taken / self.recommended) if self.recommended else None


def question_figures(principal: Principal, period: Period, project: str) -> QuestionFigures:
    """Return the figures of the projects that the principal may see, or of one of them."""
    days = split_days(period.since, period.until)
    found = figures_of_days(sums_of(DayFigures, principal, project, days), OF_CLARIFICATIONS)
    asked = Question.objects.filter(days.without_sums("asked_at"))
    visible = in_visible_projects(asked, principal, project, "task__project__in")
    add_figures(found, with_share(visible), OF_CLARIFICATIONS)
    counts = {name: int(value) for name, value in found.items()}
    timings = tuple(
        Timing(name, *(counts.pop(f"{kind}_{number}") for kind in ("before_work", "late", "others")))
        for number, (name, _, _) in enumerate(SHARES)
    )
    return QuestionFigures(timings=timings, **counts)


def figure_rows(figures: QuestionFigures) -> Iterator[dict[str, Any]]:
    """Yield the figures as rows of a CSV: `count` of `of`."""
    parts = {"before work": figures.before_work, "late": figures.late, "others": figures.others}
    for part, count in parts.items():
        yield {"figure": "asked", "part": part, "count": count, "of": figures.questions}
    yield {
        "figure": "tasks asked before work", "part": "",
        "count": figures.tasks_before_work, "of": figures.before_work,
    }  # fmt: skip
    for timing in figures.timings:
        kinds = {"before work": timing.before_work, "late": timing.late, "others": timing.others}
        for kind, count in kinds.items():
            part = f"{timing.share.lower()}, {kind}"
            yield {"figure": "when asked", "part": part, "count": count, "of": figures.timed}
    yield {
        "figure": "recommended option taken", "part": "",
        "count": figures.recommended_taken, "of": figures.recommended,
    }  # fmt: skip
    yield {"figure": "asked before", "part": "", "count": figures.asked_before, "of": figures.compared}

"""When questions of agents came in a period, and what they brought (SPEC D8); one query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, ExpressionWrapper, F, FloatField, Q, Sum, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import NullIf

from tasks_app.core.phases import Phase
from tasks_app.models import Question, QuestionKind, QuestionState, StepKind
from tasks_app.permissions import Principal
from tasks_app.reporting.usage import Period, Seconds, in_visible_projects

#: The shares of a task's working time in which questions are counted: name, from, to.
SHARES = (
    ("First 10 %", 0.0, 0.1),
    ("10 to 40 %", 0.1, 0.4),
    ("40 to 70 %", 0.4, 0.7),
    ("Last 30 %", 0.7, None),
)
_BEFORE = Q(step__kind=StepKind.CLARIFY)
_LATE = Q(is_late=True)
_ANSWERED = Q(state=QuestionState.ANSWERED)
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
    asked = Question.objects.filter(kind=QuestionKind.CLARIFICATION, **period.conditions("asked_at"))
    visible = in_visible_projects(asked, principal, project, "task__project__in").order_by()
    counted: dict[str, Any] = visible.annotate(share=_share_of_work()).aggregate(
        questions=Count("pk"),
        before_work=Count("pk", filter=_BEFORE),
        tasks_before_work=Count("task", filter=_BEFORE, distinct=True),
        late=Count("pk", filter=_LATE),
        recommended=Sum("recommended", filter=_ANSWERED),
        recommended_taken=Sum("recommended_taken", filter=_ANSWERED),
        compared=Count("pk", filter=~Q(item_keys="")),
        asked_before=Count("pk", filter=Q(asked_before=True)),
        **_counts_by_share(),
    )
    timings = tuple(
        Timing(name, *(counted.pop(f"{kind}_{number}") for kind in ("before", "goal", "other")))
        for number, (name, _, _) in enumerate(SHARES)
    )
    return QuestionFigures(timings=timings, **{name: value or 0 for name, value in counted.items()})


def _share_of_work() -> ExpressionWrapper[CombinedExpression]:
    """Return the share of its task's working time that had passed; null if the task has not ended."""
    length = Seconds("task__ended_at", "task__started_at") - F("task__paused_seconds")
    positive = NullIf(length, Value(0.0, output_field=FloatField()))
    return ExpressionWrapper(F("worked_seconds") / positive, output_field=FloatField())


def _counts_by_share() -> dict[str, Count]:
    counts = {}
    for number, (_, begin, end) in enumerate(SHARES):
        within = Q(task__phase=Phase.DONE, share__gte=begin) if begin else Q(task__phase=Phase.DONE)
        within &= Q(share__lt=end) if end is not None else Q(share__isnull=False)
        counts[f"before_{number}"] = Count("pk", filter=within & _BEFORE)
        counts[f"goal_{number}"] = Count("pk", filter=within & _LATE)
        counts[f"other_{number}"] = Count("pk", filter=within & ~_BEFORE & ~_LATE)
    return counts


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

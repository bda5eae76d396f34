"""What is counted of runs, tasks and questions: by day in `DayFigures`, and now, of days without sums."""

from __future__ import annotations

from typing import Any

from django.db.models import (
    Count,
    Exists,
    ExpressionWrapper,
    F,
    FloatField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
)
from django.db.models.functions import NullIf

from tasks_app.core.phases import Phase
from tasks_app.history.sql_functions import Seconds
from tasks_app.models import Channel, Outcome, Question, QuestionKind, QuestionState, Run, StepKind, Task
from tasks_app.models.task import EarlyEnd

#: The shares of a task's working time in which questions are counted: name, from, to.
SHARES = (
    ("First 10 %", 0.0, 0.1),
    ("10 to 40 %", 0.1, 0.4),
    ("40 to 70 %", 0.4, 0.7),
    ("Last 30 %", 0.7, None),
)
#: Answers of people: a decision answers at once.
BY_PEOPLE = Q(answered_at__isnull=False) & ~Q(answered_via=Channel.DECISION)

_EARLY = Q(phase=Phase.DONE, early_end=EarlyEnd.ENDED)
_ENDED = Q(started_at__isnull=False, ended_at__isnull=False)
_CLARIFICATION = Q(kind=QuestionKind.CLARIFICATION)
_BEFORE = _CLARIFICATION & Q(step__kind=StepKind.CLARIFY)
_LATE = _CLARIFICATION & Q(is_late=True)
#: Of the cards of a pass, the first stands for the task: so sums of days add up.
_EARLIER = Question.objects.filter(
    step=OuterRef("step"), kind=QuestionKind.CLARIFICATION, pk__lt=OuterRef("pk")
)
_OTHERS = _CLARIFICATION & ~_BEFORE & ~_LATE
_ANSWERED = _CLARIFICATION & Q(state=QuestionState.ANSWERED)

#: Aggregates by name, for runs.
OF_RUNS: dict[str, Any] = {
    "runs_running": Count("pk", filter=Q(outcome="")),
    **{f"runs_{outcome}": Count("pk", filter=Q(outcome=outcome)) for outcome in Outcome.values},
}
#: Aggregates by name, for tasks that have ended.
OF_TASKS: dict[str, Any] = {
    "tasks_done": Count("pk", filter=Q(phase=Phase.DONE) & ~_EARLY),
    "tasks_finished_early": Count("pk", filter=_EARLY),
    "tasks_failed": Count("pk", filter=Q(phase=Phase.FAILED)),
    "tasks_cancelled": Count("pk", filter=Q(phase=Phase.CANCELLED)),
    "tasks_ended": Count("pk", filter=_ENDED),
    "task_seconds": Sum(Seconds("ended_at", "started_at"), filter=_ENDED),
    "paused_seconds": Sum("paused_seconds", filter=_ENDED),
    "last_end": Max("ended_at"),
}
#: Aggregates by name, for questions: all, and those that people answered.
OF_ANSWERS: dict[str, Any] = {"asked": Count("pk"), "answered": Count("pk", filter=BY_PEOPLE)}


def _of_clarifications() -> dict[str, Any]:
    counts: dict[str, Any] = {
        "questions": Count("pk", filter=_CLARIFICATION),
        "before_work": Count("pk", filter=_BEFORE),
        "tasks_before_work": Count("pk", filter=_BEFORE & Q(~Exists(_EARLIER))),
        "late": Count("pk", filter=_LATE),
        "recommended": Sum("recommended", filter=_ANSWERED),
        "recommended_taken": Sum("recommended_taken", filter=_ANSWERED),
        "compared": Count("pk", filter=_CLARIFICATION & ~Q(item_keys="")),
        "asked_before": Count("pk", filter=_CLARIFICATION & Q(asked_before=True)),
    }
    for number, (_, begin, end) in enumerate(SHARES):
        within = Q(task__phase=Phase.DONE, share__gte=begin) if begin else Q(task__phase=Phase.DONE)
        within &= Q(share__lt=end) if end is not None else Q(share__isnull=False)
        for name, kind in (("before_work", _BEFORE), ("late", _LATE), ("others", _OTHERS)):
            counts[f"{name}_{number}"] = Count("pk", filter=within & kind)
    return counts


#: Aggregates by name, for questions with their `share`.
OF_CLARIFICATIONS = _of_clarifications()
#: Which aggregates belong to which rows, and the time by which those belong to a day.
FIGURES: tuple[tuple[type[Run | Task | Question], str, str, dict[str, Any]], ...] = (
    (Run, "started_at", "step__task__project", OF_RUNS),
    (Task, "created_at", "project", OF_TASKS),
    (Question, "asked_at", "task__project", OF_ANSWERS | OF_CLARIFICATIONS),
)


def with_share(questions: QuerySet[Question]) -> QuerySet[Question]:
    """Annotate the share of its task's working time that had passed; null if the task has not ended."""
    length = Seconds("task__ended_at", "task__started_at") - F("task__paused_seconds")
    positive = NullIf(length, Value(0.0, output_field=FloatField()))
    share = ExpressionWrapper(F("worked_seconds") / positive, output_field=FloatField())
    return questions.annotate(share=share)

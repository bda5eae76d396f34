"""The rungs of a question's ladder: what happens, and what happened, while nobody answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Self

from django.db import models
from django.db.models import Case, F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce

from tasks_app.core.ladder import RungAction
from tasks_app.models.asked import AskedBy
from tasks_app.models.question import Question, QuestionQuerySet
from tasks_app.models.question_kinds import QuestionState
from tasks_app.models.user import User


class RungOutcome(models.TextChoices):
    """What came of a rung. One without an outcome is due later, or the question was answered before."""

    DONE = "done", "done"
    UNREACHED = "unreached", "nobody was reached"
    #: Of a rung that ends the question without an answer: a person must answer this one.
    LEFT = "left", "left to people"


class RungQuerySet(models.QuerySet["Rung"]):
    def upcoming(self) -> Self:
        """Return the rungs of open questions that are not done."""
        return self.filter(done_at=None, question__state=QuestionState.OPEN)


class Rung(models.Model):
    """One rung of a question's ladder. Number 0 is the moment in which it was put to people.

    A conditional UPDATE of `done_at` does a rung, so that each happens once. If the question is not open, no
    rung is done; one that is opened again goes on where it was. If none of the messages of a rung arrived,
    its outcome is `unreached`, `failure` says why, and the next one is due at once.
    """

    question = models.ForeignKey(Question, on_delete=models.CASCADE, related_name="rungs")
    position = models.PositiveSmallIntegerField()
    action = models.CharField(max_length=20, choices=[(one.value, one.value) for one in RungAction])
    name = models.CharField(
        max_length=100, blank=True, default="", db_default="",
        help_text="The name of the ladder, or the line that says the rung.",
    )  # fmt: skip
    at_any_hour = models.BooleanField(default=False, help_text="Also in quiet hours and at night.")
    due = models.DateTimeField()
    done_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=20, choices=RungOutcome, blank=True)
    failure = models.CharField(
        max_length=500, blank=True, help_text="Why nobody was reached, or why it is left to people."
    )

    objects = RungQuerySet.as_manager()

    class Meta:
        ordering = ["question_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["question", "position"], name="one_rung_at_a_position"),
            models.CheckConstraint(
                condition=Q(done_at=None) ^ ~Q(outcome=""), name="a_done_rung_has_an_outcome"
            ),
        ]
        indexes = [models.Index(fields=["due"], condition=Q(done_at=None), name="rung_not_done")]

    def __str__(self) -> str:
        return f"rung {self.position} ({self.action}) of question {self.question_id}"

    @property
    def announcement(self) -> str:
        """What it will do, in front of the time at which it is due: “reminder at”, “everybody from”."""
        if self.action == RungAction.EVERYBODY and self.question.asked_now:
            return "everybody from"
        if self.action in (RungAction.REMIND, RungAction.EVERYBODY):
            return "reminder at"
        if self.action == RungAction.AGENT_DECIDES:
            return "the agent decides at"
        return "its recommendation is taken at"


def next_rung(question: Question, user: User | None = None) -> Rung | None:
    """Return what happens next if nobody answers; None if nothing does. Reads no row that was prefetched.

    With a user, who is not asked by name while others are: the next rung that asks everybody.
    """
    if not question.is_open:
        return None
    upcoming = [one for one in question.rungs.all() if one.done_at is None]
    named = {one.user_id for one in question.asked_now if one.asked_by != AskedBy.OPINION}
    if user and named and user.pk not in named:
        upcoming = [one for one in upcoming if one.action == RungAction.EVERYBODY]
    return next(iter(upcoming), None)


def climbed(question: Question) -> list[Rung]:
    """Return the rungs on which others were told while nobody answered. Reads no row that was prefetched."""
    told = (RungAction.REMIND, RungAction.EVERYBODY)
    return [one for one in question.rungs.all() if one.done_at and one.action in told]


#: Stands for no deadline, and is later than all.
_NEVER = datetime(9000, 1, 1, tzinfo=UTC)
_URGENCY = ("blocks", "deadline", "asked_at", "pk")


def by_urgency(questions: QuestionQuerySet, *, after: int | None = None) -> QuestionQuerySet:
    """Order open questions by what they block (SPEC Q6).

    First those of sequences, whose later tasks wait for them; then by deadline, which is when the next rung
    is due, or when the last one was; then what has waited longest. With `after`, leave out the question with
    this id and those before it.
    """
    deadline = deadline_of(question=OuterRef("pk"))
    ordered = questions.annotate(
        blocks=Case(When(task__sequence__isnull=False, then=Value(0)), default=Value(1)),
        deadline=Coalesce(deadline, Value(_NEVER), output_field=models.DateTimeField()),
    ).order_by(*_URGENCY)
    if after is None:
        return ordered
    last = by_urgency(Question.objects.filter(pk=after)).values(*_URGENCY).first()
    return ordered.filter(_follows(last)) if last else ordered


def deadline_of(**where: Any) -> Subquery:
    """Return when the next rung of these questions is due, or when the last was due if all are done."""
    rungs = Rung.objects.filter(position__gt=0, **where)
    return Subquery(rungs.order_by(F("done_at").desc(nulls_first=True), "due").values("due")[:1])


def _follows(last: dict[str, Any]) -> Q:
    """Return the condition of rows that come after one with these values."""
    found, equal = Q(), Q()
    for name in _URGENCY:
        found |= equal & Q(**{f"{name}__gt": last[name]})
        equal &= Q(**{name: last[name]})
    return found

"""Decisions of a project that outlive the task in which they were made, and what happened to them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NotRequired, Self, TypedDict

from django.db import models
from django.db.models import Case, Count, Exists, IntegerField, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from tasks_app.config.decision_records import MAX_REASON, MAX_STATEMENT
from tasks_app.core.asked_items import sentence_with_beginning, title_of
from tasks_app.core.similar_questions import question_digest, word_root
from tasks_app.core.text import lines_joined
from tasks_app.models.project import Project
from tasks_app.models.question import Question
from tasks_app.models.run import Run
from tasks_app.models.task import Task
from tasks_app.models.user import ACTING_ROLES, Membership, User

#: Longest question that is quoted whole beside a decision; of a longer one its beginning and what asks.
MAX_ASKED = 300
_LABEL = re.compile(r"\b[Dd]-([0-9]{1,9})\b")


def decisions_named_in(text: str) -> set[int]:
    """Return the numbers of the decisions that the text cites, as in D-17."""
    return {int(number) for number in _LABEL.findall(text)}


class DecisionState(models.TextChoices):
    PROPOSED = "proposed", "proposed"
    ACTIVE = "active", "active"
    SUPERSEDED = "superseded", "superseded"
    RETIRED = "retired", "retired"


#: Choices of lists besides the states: active or proposed, to review, all.
CURRENT, REVIEW, ALL = "current", "review", "all"


class DecisionScope(models.TextChoices):
    """Where a decision holds."""

    PATHS = "paths", "these paths"
    STEP = "step", "one step"
    PROJECT = "project", "whole project"


class ReviewReason(models.TextChoices):
    """Why somebody should look at a decision again; it stays in force meanwhile."""

    UNFIT = "unfit", "an agent says that it does not fit"
    STALE = "stale", "the code that it cites has changed"


class DecisionEventKind(models.TextChoices):
    """What happened to a decision; labels are read as “NAME …”."""

    PROPOSED = "proposed", "proposed it"
    DECIDED = "decided", "decided it"
    CONFIRMED = "confirmed", "confirmed it"
    FOLLOWED = "followed", "followed it"
    APPLIED = "applied", "applied it"
    TAKEN_BACK = "taken_back", "took back that it was applied"
    UNFIT = "unfit", "said that it does not fit"
    STALE = "stale", "found that its code has changed"
    CITED_ANEW = "cited_anew", "cited its code as it is now"
    KEPT = "kept", "kept it after a review"
    EXCEPTION = "exception", "made an exception"
    SUPERSEDED = "superseded", "replaced it"
    NARROWED = "narrowed", "narrowed it"
    RETIRED = "retired", "retired it"
    RESTORED = "restored", "restored it"


#: The related rows with which a decision is shown.
DECISION_SHOWN_WITH = ("project", "decided_by", "question__task", "replaces", "exception_to")
#: What counts as a use: the decision made a difference to a task.
USES = (DecisionEventKind.FOLLOWED, DecisionEventKind.CONFIRMED, DecisionEventKind.APPLIED)
#: Events that count as an override: somebody decided otherwise. An agent's doubt does not count.
OVERRIDES = (DecisionEventKind.EXCEPTION, DecisionEventKind.TAKEN_BACK)
#: By each of these a named human said that the decision is right.
CONFIRMATIONS = (DecisionEventKind.DECIDED, DecisionEventKind.CONFIRMED)


#: Items of a card whose texts are searched; agents ask four at most.
_ITEMS_SEARCHED = 4


class Citation(TypedDict):
    """A file that a decision refers to, as it was: `blob` is the object id of its content.

    Of an imported decision, `passage` is what the file states: while it does, other changes do not matter.
    """

    path: str
    blob: str
    passage: NotRequired[str]


def _needs_review() -> Q:
    due = Q(review_after__lte=timezone.localdate())
    return Q(state=DecisionState.ACTIVE) & (~Q(review_reason="") | due)


def counted_confirmations() -> Q:
    """Filter events: confirmations of people with active accounts who may still answer in the project."""
    roles = Membership.objects.filter(
        user=OuterRef("user"), project=OuterRef("decision__project"), role__in=ACTING_ROLES
    )
    may_answer = Q(user__is_superuser=True) | Q(Exists(roles))
    return Q(kind__in=CONFIRMATIONS, user__is_active=True) & may_answer


def _events_counted(count: Count, only: Q) -> Coalesce:
    """Return a count of each decision's events, which a database does only for the rows that it returns."""
    events = DecisionEvent.objects.filter(only, decision=OuterRef("pk")).order_by()
    return Coalesce(Subquery(events.values("decision").annotate(found=count).values("found")), 0)


class DecisionQuerySet(models.QuerySet["Decision"]):
    def active(self) -> Self:
        return self.filter(state=DecisionState.ACTIVE)

    def current(self) -> Self:
        """Return the active and proposed decisions."""
        return self.filter(state__in=[DecisionState.ACTIVE, DecisionState.PROPOSED])

    def as_known(self) -> Self:
        """Load with each what agents read of it."""
        related = self.select_related("decided_by", "question__task", "replaces", "exception_to")
        return related.prefetch_related("exceptions")

    def to_review(self) -> Self:
        """Return the active ones at which somebody should look again."""
        return self.filter(_needs_review())

    def to_review_first(self) -> Self:
        """Order the decisions that need a review before the others, the newest first."""
        order = Case(When(_needs_review(), then=Value(0)), default=Value(1), output_field=IntegerField())
        return self.annotate(place=order).order_by("place", "-number")

    def listed_as(self, state: str) -> Self:
        """Return the decisions in a state, or what lists offer as `current`, `review` or `all`.

        Without those that ended because the answer which made them was undone, unless somebody used them.
        """
        if state == ALL:
            return self._without_undone()
        if state == CURRENT:
            return self.current()
        if state == REVIEW:
            return self.to_review()
        return self.filter(state=state)._without_undone()

    def _without_undone(self) -> Self:
        events = DecisionEvent.objects.filter(decision=OuterRef("pk"))
        undone = Exists(events.filter(kind=DecisionEventKind.RETIRED, question=OuterRef("question")))
        return self.exclude(undone & ~Exists(events.filter(kind__in=USES)), state=DecisionState.RETIRED)

    def search(self, words: str) -> Self:
        """Return the decisions in which all the words stand, or the one that is cited as `D-17`.

        Words are searched by their stems: “rounding” finds “round half up”. The question that was answered
        and its header count, too.
        """
        found = self
        for word in words.split():
            if Decision.is_label(word):
                found = found.filter(number=int(word[2:]))
            else:
                root = word_root(word.casefold())
                text = Q(statement__icontains=root) | Q(reason__icontains=root) | Q(source__icontains=word)
                for place in range(_ITEMS_SEARCHED):
                    asked = f"question__items__{place}"
                    text |= Q(**{f"{asked}__header__icontains": root})
                    text |= Q(**{f"{asked}__question__icontains": root})
                found = found.filter(text | Q(decided_by__username__icontains=word))
        return found

    def with_counts(self) -> Self:
        """Add `uses`, `overrides`, `doubts` (how often an agent said that it does not fit) and `confirmers`.

        `confirmers` is the number of people who confirmed it and may still answer.
        """
        return self.annotate(
            uses=_events_counted(Count("pk"), Q(kind__in=USES)),
            overrides=_events_counted(Count("pk"), Q(kind__in=OVERRIDES)),
            doubts=_events_counted(Count("pk"), Q(kind=DecisionEventKind.UNFIT)),
            confirmers=_events_counted(Count("user", distinct=True), counted_confirmations()),
        )


class Decision(models.Model):
    """An answer or a rule that holds beyond one task, cited as `D-17`.

    What it says is never edited: a change is a new decision that `replaces` this one. What changes is its
    state, with who decided, the reason and the day of a review, and the content of the files that it cites;
    each change leaves an event. An exception to another decision names it in `exception_to`.

    `question` is the one whose answer it was made from; `question_key` and `answers` (by the item's question)
    are kept here as well, so that it stays usable when the task is deleted. `source` says where it was
    imported from. `cites` are files as they were when it was made. `paths` are globs as in `allowWrite`.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="decisions")
    number = models.PositiveIntegerField(help_text="Counts the project's decisions from 1: D-1, D-2, …")
    state = models.CharField(max_length=20, choices=DecisionState, default=DecisionState.ACTIVE)
    statement = models.TextField(max_length=MAX_STATEMENT)
    reason = models.TextField(blank=True, max_length=MAX_REASON)
    scope = models.CharField(max_length=20, choices=DecisionScope, default=DecisionScope.PROJECT)
    paths: models.JSONField[list[str], list[str]] = models.JSONField(default=list, blank=True)
    step = models.CharField(max_length=100, blank=True, help_text="The step for which it holds.")
    made_at = models.DateTimeField(default=timezone.now)
    decided_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="decisions",
        help_text="Empty while it is proposed.",
    )  # fmt: skip
    decided_at = models.DateTimeField(null=True, blank=True)
    question = models.ForeignKey(
        Question, null=True, blank=True, on_delete=models.SET_NULL, related_name="decisions"
    )
    question_key = models.CharField(max_length=64, blank=True)
    answers: models.JSONField[dict[str, str], dict[str, str]] = models.JSONField(default=dict, blank=True)
    source = models.CharField(max_length=500, blank=True, help_text="The file from which it was imported.")
    cites: models.JSONField[list[Citation], list[Citation]] = models.JSONField(default=list, blank=True)
    review_after = models.DateField(null=True, blank=True)
    review_reason = models.CharField(max_length=20, choices=ReviewReason, blank=True)
    review_note = models.TextField(blank=True)
    replaces = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replaced_by"
    )
    exception_to = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="exceptions"
    )

    objects = DecisionQuerySet.as_manager()

    #: Only on rows of `with_counts()`.
    uses: int
    overrides: int
    doubts: int
    confirmers: int

    class Meta:
        ordering = ["project", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["project", "number"], name="one_decision_per_number"),
            models.CheckConstraint(
                condition=Q(state="proposed") | Q(decided_by__isnull=False) | Q(state="retired"),
                name="a_decision_in_force_has_somebody_who_decided",
            ),
            models.CheckConstraint(
                condition=Q(decided_by=None, decided_at=None)
                | Q(decided_by__isnull=False, decided_at__isnull=False),
                name="who_decided_and_when_go_together",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "state"]),
            models.Index(fields=["project", "question_key"]),
            models.Index(
                fields=["project"],
                condition=Q(state="active") & ~Q(review_reason=""),
                name="decision_to_review",
            ),
            models.Index(
                fields=["review_after"],
                condition=Q(state="active", review_after__isnull=False),
                name="decision_with_a_day",
            ),
        ]

    def __str__(self) -> str:
        return self.label

    @staticmethod
    def is_label(text: str) -> bool:
        """Return whether the text cites a decision, such as D-17."""
        return bool(_LABEL.fullmatch(text))

    @property
    def label(self) -> str:
        """The label by which people and agents cite it."""
        return f"D-{self.number}"

    @property
    def asked(self) -> str:
        """The question that it answers, with what it says before it asks: “Which of the two?” needs that.

        "" if nobody asked, or if it is about several questions at once.
        """
        asked = list(self.answers)
        if not asked and self.question:
            items = self.question.items
            own = [item for item in items if question_digest([item]) == self.question_key]
            asked = [str(item["question"]) for item in own or items]
        if len(asked) != 1:
            return ""
        whole = lines_joined(asked[0])
        if len(whole) <= MAX_ASKED:
            return whole
        in_context = sentence_with_beginning(asked[0], MAX_ASKED)
        if len(in_context) <= MAX_ASKED:
            return in_context
        return lines_joined(title_of([{"question": asked[0]}]).asked)

    @property
    def is_active(self) -> bool:
        return self.state == DecisionState.ACTIVE

    @property
    def is_proposed(self) -> bool:
        return self.state == DecisionState.PROPOSED

    @property
    def state_in_words(self) -> str:
        """Its state and, if it is superseded, by which decision."""
        if self.state == DecisionState.SUPERSEDED and (new := self.successors):
            return f"superseded by {new}"
        return str(self.state)

    @property
    def successors(self) -> str:
        """The labels of the decisions that replaced it, or that replaced these since."""
        found, following = [], list(self.replaced_by.all())
        while following:
            one = following.pop(0)
            later = list(one.replaced_by.all()) if one.state == DecisionState.SUPERSEDED else []
            following += later
            if not later:
                found.append(one.label)
        return ", ".join(found)

    @property
    def exceptions_in_words(self) -> str:
        """The exceptions to it that are in force, with where they hold: “D-18 (src/refunds/**)”."""
        active = [one for one in self.exceptions.all() if one.is_active]
        return ", ".join(f"{one.label} ({one.scope_in_words})" for one in active)

    @property
    def is_due(self) -> bool:
        """Whether the date of *review after* has come."""
        return bool(self.is_active and self.review_after and self.review_after <= timezone.localdate())

    @property
    def why_review(self) -> str:
        """Why somebody should look at it again, for people; "" if nobody needs to."""
        if not self.is_active:
            return ""
        if self.review_reason:
            label = str(ReviewReason(self.review_reason).label)
            return ": ".join(filter(None, [label, self.review_note]))
        if self.is_due:
            return f"it was to be reviewed after {self.review_after:%Y-%m-%d}"
        return ""

    @property
    def doubt(self) -> str:
        """Why an agent said that it does not fit, if nobody has looked at that since; else empty."""
        if self.review_reason == ReviewReason.UNFIT:
            return self.review_note
        # Beside changed code, which is the reason for the review, the note has it behind the label.
        return self.review_note.partition(f"{ReviewReason.UNFIT.label}: ")[2]

    @property
    def scope_in_words(self) -> str:
        """Where it holds: “src/**, docs/**”, “step plan” or “whole project”."""
        if self.scope == DecisionScope.PATHS:
            return ", ".join(self.paths)
        if self.scope == DecisionScope.STEP:
            return f"step {self.step}"
        return "whole project"


class DecisionEventQuerySet(models.QuerySet["DecisionEvent"]):
    def followed_by(self, tasks: Collection[Task]) -> dict[int, list[int]]:
        """Return the numbers of the decisions that agents of the tasks followed, by task id."""
        found: dict[int, list[int]] = {task.pk: [] for task in tasks}
        rows = self.filter(kind=DecisionEventKind.FOLLOWED, task__in=list(found)).order_by("decision__number")
        for task_id, number in rows.values_list("task", "decision__number"):
            found[task_id or 0].append(number)
        return found


class DecisionEvent(models.Model):
    """One thing that happened to a decision. Append-only.

    `user` is None if an agent (of `run`) or the portal did it. `note` is their reason in their words.
    """

    decision = models.ForeignKey(Decision, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=20, choices=DecisionEventKind)
    at = models.DateTimeField(default=timezone.now)
    user = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="decision_events"
    )
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.SET_NULL, related_name="decision_events"
    )
    run = models.ForeignKey(
        Run, null=True, blank=True, on_delete=models.SET_NULL, related_name="decision_events"
    )
    question = models.ForeignKey(
        Question, null=True, blank=True, on_delete=models.SET_NULL, related_name="decision_events"
    )
    note = models.TextField(blank=True)
    key = models.CharField(
        max_length=64, blank=True, editable=False,
        help_text="Tells apart what is read twice, such as a document of an agent.",
    )  # fmt: skip

    objects = DecisionEventQuerySet.as_manager()

    class Meta:
        ordering = ["decision", "at", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["decision", "kind", "key"], condition=~Q(key=""), name="one_event_per_key"
            ),
        ]
        indexes = [models.Index(fields=["task", "kind"])]

    def __str__(self) -> str:
        return f"{self.decision}: {self.get_kind_display()}"

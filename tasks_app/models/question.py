"""Questions of agents, and their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from django.db import models
from django.db.models import Count, F, Q
from django.utils import timezone
from django.utils.functional import cached_property

from tasks_app.core.asked_items import Title, row_title, title_of
from tasks_app.core.types import ALLOW_COMMAND, NO_PLAN
from tasks_app.models.channel import Channel, through
from tasks_app.models.question_kinds import (
    KIND_NAMES,
    SETTLED,
    VERDICTS,
    QuestionKind,
    QuestionState,
    Verdict,
)
from tasks_app.models.run import Run
from tasks_app.models.step import Step
from tasks_app.models.task import Task
from tasks_app.models.user import User

if TYPE_CHECKING:
    from tasks_app.models.asked import Asked


#: How long “NAME is answering” is shown unless that user says it again.
CLAIM_LASTS = timedelta(minutes=3)

#: The related rows that the card of a question shows.
SHOWN_WITH = (
    "task__project", "step", "run", "answered_by", "claimed_by", "applied", "taken_back_by", "reopens",
)  # fmt: skip


class QuestionQuerySet(models.QuerySet["Question"]):
    def open(self) -> Self:
        return self.filter(state=QuestionState.OPEN)

    def shown(self) -> Self:
        """Fetch what cards and rows show of each, with more queries for whom they are asked of and rungs."""
        return self.select_related(*SHOWN_WITH).prefetch_related("asked__user", "asked__by", "rungs")

    def open_of(self, task: Task) -> list[Question]:
        """Return the open questions of a task in order, with the related rows for showing them."""
        return self.open_by_task([task]).get(task.pk, [])

    def count_open_by_task(self, task_ids: Collection[int]) -> dict[int, int]:
        counts = self.open().filter(task__in=task_ids).order_by().values_list("task").annotate(Count("pk"))
        return dict(counts)

    def open_by_task(self, tasks: Collection[Task]) -> dict[int, list[Question]]:
        """Return the open questions of many tasks by task id, with one query."""
        found: dict[int, list[Question]] = defaultdict(list)
        questions = self.open().filter(task__in=[task.pk for task in tasks])
        for question in questions.shown():
            found[question.task_id].append(question)
        return found

    def answered(self) -> Self:
        return self.filter(state=QuestionState.ANSWERED)

    def in_force(self) -> Self:
        """Return questions, except if the answer was taken back after the agent had it."""
        return self.filter(taken_back_at=None)

    def asked_again(self) -> Self:
        """Return the portal's questions that replace a question whose applied answer was taken back."""
        return self.filter(reopens__isnull=False)

    def of_agents(self) -> Self:
        """Return the questions that agents asked, without the portal's own."""
        return self.exclude(kind=QuestionKind.COST)

    def about_costs(self) -> Self:
        """Return the portal's questions at a soft cost limit."""
        return self.filter(kind=QuestionKind.COST)

    def endings(self) -> Self:
        """Return the answers “End the task” that have not been carried out yet."""
        return self.about_costs().answered().filter(allowed_usd=None, delivered_at=None)

    def finishings(self) -> Self:
        """Return the answers “Finish early”, the newest last."""
        return self.about_costs().answered().filter(finishes=True).order_by("number")

    def forget_ends(self) -> None:
        """Mark answers that end a task and were not carried out: somebody has decided otherwise."""
        self.endings().update(delivered_at=timezone.now())
        self.finishings().order_by().filter(delivered_at=None).update(delivered_at=timezone.now())

    def approved_plans(self) -> Self:
        """Return the approved plans of runs that count (see `Step.first_run`)."""
        counts = Q(run__number__gte=F("step__first_run"))
        return self.filter(counts, kind=QuestionKind.PLAN, verdict=Verdict.APPROVED)

    def settled(self) -> Self:
        """Return questions that were answered, dismissed or ended; the agent must be told of each."""
        return self.filter(state__in=SETTLED)


class Question(models.Model):
    """A question to a human: of a halted agent, or of the portal at a soft cost limit (the kind `cost`).

    The portal's own has the task's last run as its `run`, in whose log it stands, and the step that waits for
    the answer as its `step`. `allowed_usd` and `finishes` are what was answered to it.

    `items`: one or more of {question, header, options: [{label, description, preview}], multiSelect};
    `answers` maps each item's question to its answer. `tool_use_id` is the call whose result the answer
    becomes; `tool_input` is that call's input as the agent wrote it. An approval or a plan has one item,
    `evidence` (a list of {kind, title, text} with the kind command, file, diff, text or markdown), and in the
    end a `verdict`. `answered_…` also say who dismissed it, and when.

    If a decision was `applied` or a rule ended it (`ended_by_rule`), nobody answered: `answered_by` is empty.
    If that was taken back after the agent had been told, `taken_back_…` say by whom and when, and another
    question `reopens` this one.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="questions")
    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="questions")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="questions")
    number = models.PositiveIntegerField(help_text="Counts the task's questions from 1.")
    kind = models.CharField(max_length=20, choices=QuestionKind, default=QuestionKind.CLARIFICATION)
    state = models.CharField(max_length=20, choices=QuestionState, default=QuestionState.OPEN)
    way = models.CharField(max_length=20, help_text="The tool by which the agent asked.")
    tool_use_id = models.CharField(max_length=200)
    tool_input = models.JSONField(default=dict)
    deferred = models.BooleanField(
        default=True, help_text="Whether the session waits for this very call's result."
    )
    items: models.JSONField[list[dict[str, Any]], list[dict[str, Any]]] = models.JSONField()
    evidence: models.JSONField[list[dict[str, str]], list[dict[str, str]]] = models.JSONField(
        default=list, blank=True
    )
    about_goal = models.BooleanField(
        default=False, db_default=False, help_text="About the goal of the task, not about the way to it."
    )
    is_late = models.BooleanField(
        default=False, db_default=False, editable=False,
        help_text="Whether it is about the goal and came when work was already based on a guess.",
    )  # fmt: skip
    worked_seconds = models.FloatField(
        null=True, blank=True, editable=False,
        help_text="How long the task had been worked on when it was asked, without pauses.",
    )  # fmt: skip
    recommended = models.PositiveSmallIntegerField(
        default=0, db_default=0, editable=False, help_text="Items that recommend an option."
    )
    recommended_taken = models.PositiveSmallIntegerField(
        default=0, db_default=0, editable=False, help_text="Those answered with what was recommended."
    )
    item_keys = models.TextField(
        default="", db_default="", blank=True, editable=False,
        help_text="A key of each item's text and options, to find what is asked again.",
    )  # fmt: skip
    asked_before = models.BooleanField(
        default=False, db_default=False, editable=False,
        help_text="Whether one of its items had been asked in the project before.",
    )  # fmt: skip
    asked_at = models.DateTimeField()
    routed_at = models.DateTimeField(
        null=True, blank=True, editable=False,
        help_text="When it was put to people; see `Asked`. Empty: asked of all, or about to be routed.",
    )  # fmt: skip
    answered_at = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="answers"
    )
    answered_via = models.CharField(max_length=20, choices=Channel, blank=True)
    answered_with = models.CharField(
        max_length=100, blank=True, default="", db_default="",
        help_text="The program through which it was answered, as it calls itself.",
    )  # fmt: skip
    answers: models.JSONField[dict[str, str], dict[str, str]] = models.JSONField(default=dict, blank=True)
    notes = models.TextField(blank=True)
    allowed_usd = models.FloatField(
        null=True, blank=True,
        help_text="At a soft cost limit: what the task may cost before it asks again; empty: it ends.",
    )  # fmt: skip
    finishes = models.BooleanField(
        default=False, db_default=False,
        help_text="At a soft cost limit: whether the task ends with its present step.",
    )  # fmt: skip
    verdict = models.CharField(max_length=20, choices=Verdict, blank=True)
    handed_in = models.ForeignKey(
        Run,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="answers_handed_in",
        help_text="The run that was last given the answer.",
    )
    delivered_at = models.DateTimeField(
        null=True, blank=True, help_text="When the agent was seen to have the answer."
    )
    taken_from = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="taken_by",
        help_text="The earlier question whose answer was used, unchanged.",
    )

    applied = models.ForeignKey(
        "tasks_app.Decision",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="applied_to",
        help_text="The decision that answered it, without a human.",
    )
    ended_by_rule = models.CharField(
        max_length=100, blank=True, default="", db_default="",
        help_text="The rung of the ladder that ended it without an answer.",
    )  # fmt: skip
    taken_back_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    taken_back_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the answer of a decision or a rule was taken back, after the agent had it.",
    )
    reopens = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="reopened_as",
        help_text="The question that this one asks again.",
    )

    claimed_by = models.ForeignKey(
        User,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Who last began to answer. This informs others and blocks nobody.",
    )
    claimed_at = models.DateTimeField(null=True, blank=True)

    objects = QuestionQuerySet.as_manager()

    class Meta:
        ordering = ["asked_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["run", "tool_use_id"], name="one_question_per_call"),
            models.UniqueConstraint(fields=["task", "number"], name="one_question_per_number"),
            models.CheckConstraint(
                condition=Q(state__in=["answered", "dismissed", "unanswered"]) ^ Q(answered_at=None),
                name="settled_has_a_time_and_nothing_else_does",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["dismissed", "unanswered"]) | Q(kind="clarification"),
                name="only_questions_are_dismissed",
            ),
            models.CheckConstraint(
                condition=Q(verdict="") ^ (Q(state="answered") & ~Q(kind__in=["clarification", "cost"])),
                name="a_verdict_is_what_settles_approvals_and_plans",
            ),
            models.CheckConstraint(
                condition=Q(state="unanswered") ^ Q(ended_by_rule=""), name="a_rule_ends_what_is_unanswered"
            ),
        ]
        indexes = [
            models.Index(fields=["asked_at"]),
            models.Index(fields=["state", "asked_at"]),
            models.Index(fields=["state", "answered_at"]),
        ]

    def __str__(self) -> str:
        return self.headline

    @property
    def headline(self) -> str:
        if not self.items:
            return ""
        return str(self.items[0]["question"])

    @property
    def title(self) -> Title:
        """What lists and notifications call it."""
        return title_of(self.items)

    @property
    def row_title(self) -> Title:
        """What a row of a list shows of it."""
        return row_title(self.items, self.evidence)

    @property
    def kind_name(self) -> str:
        """What it is called beside its number, as in “Plan 3”."""
        return KIND_NAMES[self.kind]

    @cached_property
    def revises(self) -> Question | None:
        """The plan of the same step that was decided last before this one; None for other questions."""
        if self.kind != QuestionKind.PLAN:
            return None
        before = self.step.questions.filter(kind=QuestionKind.PLAN, number__lt=self.number)
        counted = before.filter(run__number__gte=self.step.first_run).select_related("answered_by")
        return counted.exclude(verdict="").last()

    @property
    def rule(self) -> str:
        """The pattern of `askBefore` because of which an approval is asked for; "" if it is not known."""
        return next((str(piece["text"]) for piece in self.evidence if piece.get("kind") == "rule"), "")

    @property
    def long_command(self) -> str:
        """The whole command of an approval if the headline has only a part of it; else ""."""
        commands = (str(piece["text"]) for piece in self.evidence if piece.get("kind") == "command")
        command = next(commands, "")
        if f"`{command}`" in self.headline:
            return ""
        return command

    @property
    def headline_by_evidence(self) -> str:
        """The headline beside the evidence, which already shows the whole command."""
        if self.kind == QuestionKind.APPROVAL and self.evidence and self.evidence[0].get("kind") == "command":
            return ALLOW_COMMAND
        return self.headline

    @property
    def plan(self) -> str:
        """The text of a plan to review, as the card shows it; "" if the agent wrote none."""
        text = str(self.evidence[0]["text"]) if self.kind == QuestionKind.PLAN and self.evidence else ""
        return "" if text == NO_PLAN else text

    @property
    def takes_answer(self) -> bool:
        """Whether it is answered in words or options, not decided by a verdict."""
        return not VERDICTS[self.kind]

    @property
    def is_about_cost(self) -> bool:
        return self.kind == QuestionKind.COST

    @property
    def cost_choice(self) -> Literal["", "raise", "finish", "stop"]:
        """What a human chose at a soft cost limit; empty for other questions, and without an answer."""
        if not self.is_about_cost or self.state != QuestionState.ANSWERED:
            return ""
        if self.finishes:
            return "finish"
        if self.allowed_usd is None:
            return "stop"
        return "raise"

    @property
    def ends_task(self) -> bool:
        """Whether its answer is to end the task at its soft cost limit."""
        return self.cost_choice == "stop"

    @property
    def is_open(self) -> bool:
        return self.state == QuestionState.OPEN

    @property
    def asked_now(self) -> list[Asked]:
        """Whom it is asked of, by name; nobody if it is asked of all who may answer."""
        models.prefetch_related_objects([self], "asked__user", "asked__by")
        return [one for one in self.asked.all() if one.ended_at is None]

    @property
    def claim_lasts(self) -> int:
        """The seconds for which somebody is still shown to be answering."""
        if not self.is_open or self.claimed_by_id is None or self.claimed_at is None:
            return 0
        return max(0, int((self.claimed_at + CLAIM_LASTS - timezone.now()).total_seconds()))

    @property
    def is_claimed(self) -> bool:
        return self.claim_lasts > 0

    @property
    def answers_in_order(self) -> dict[str, str]:
        """The answers in the order of the items; PostgreSQL's JSON does not keep the order of keys."""
        asked = [str(item["question"]) for item in self.items]
        return {question: self.answers[question] for question in asked if question in self.answers}

    @property
    def is_applied(self) -> bool:
        """Whether a decision answered it."""
        return self.answered_via == Channel.DECISION

    @property
    def is_unanswered(self) -> bool:
        """Whether a rule ended it, because nobody had answered."""
        return self.state == QuestionState.UNANSWERED

    @property
    def is_settled_by_portal(self) -> bool:
        """Whether no person answered now: a decision did, or a rule ended it."""
        return self.is_applied or self.is_unanswered

    @property
    def answerer(self) -> str:
        """Who or what answered or ended it, as people and agents read it: a name, D-17, or a rule.

        Empty while it is open.
        """
        if self.answered_by:
            return self.answered_by.shown_name
        if self.is_unanswered:
            return f"the rule “{self.ended_by_rule}”"
        if not self.is_applied:
            return ""
        return self.applied.label if self.applied else "a decision"

    @property
    def answered_through(self) -> str:
        """The channel of the answer, as people read it behind a name; empty without an answer."""
        return through(self.answered_via, self.answered_with)

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def is_dismissed(self) -> bool:
        return self.state == QuestionState.DISMISSED

    @property
    def agent_decides(self) -> bool:
        """Whether it is settled without an answer, so that the agent decides by itself."""
        return self.is_settled and not self.answers

    @property
    def is_turned_down(self) -> bool:
        """Whether a human refused the call, so that it ends like a failed one."""
        return self.verdict in (Verdict.DENIED, Verdict.SENT_BACK)

    @property
    def outcome(self) -> str:
        """One or two words that precede “by NAME”, such as “Approved”; empty while it is open."""
        if not self.is_settled:
            return ""
        if self.verdict:
            return str(Verdict(self.verdict).label)
        return str(QuestionState(self.state).label.capitalize())

    @property
    def asked_and_answered(self) -> list[tuple[str, str]]:
        """Return each question of the card with its answer; notes follow the last answer.

        A card without answers, or with a verdict, is one pair of its questions and `answer_text`.
        """
        pairs = list(self.answers_in_order.items())
        if len(pairs) <= 1 or self.verdict:
            return [("\n".join(str(item["question"]) for item in self.items), self.answer_text)]
        if self.notes:
            last, answer = pairs[-1]
            pairs[-1] = (last, f"{answer}\n\n{self.notes_label}: {self.notes}")
        return pairs

    @property
    def notes_label(self) -> str:
        """What the notes are called, with the questions that they belong to."""
        if self.verdict == Verdict.DENIED:
            return "Reason"
        if self.verdict == Verdict.SENT_BACK:
            return "Comments"
        if len(self.items) > 1:
            return "Notes on all of these questions"
        return "Notes"

    @property
    def answer_text(self) -> str:
        """The answer in one text, for the history and logs.

        For a dismissed question, the notes; show `outcome` beside them, because they are not an answer.
        """
        if self.is_dismissed:
            return self.notes
        if self.verdict:
            return ": ".join(filter(None, [self.outcome, self.notes]))
        if len(self.items) <= 1:
            text = "".join(self.answers.values())
        else:
            text = "\n".join(f"{question}: {answer}" for question, answer in self.answers_in_order.items())
        if self.notes:
            text += f"\n\n{self.notes_label}: {self.notes}"
        return text

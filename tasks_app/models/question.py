"""A question that halted a task, and the answer it got."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.db.models import Q

from tasks_app.models.people import User
from tasks_app.models.run import Run
from tasks_app.models.task import Step, Task


class QuestionKind(models.TextChoices):
    CLARIFICATION = "clarification", "a question"
    APPROVAL = "approval", "approval of a tool call"
    PLAN = "plan", "a plan to review"


class QuestionState(models.TextChoices):
    OPEN = "open", "open"
    ANSWERED = "answered", "answered"
    WITHDRAWN = "withdrawn", "withdrawn"


class Channel(models.TextChoices):
    WEB = "web", "web"
    TERMINAL = "terminal", "terminal"
    API = "api", "API"


class QuestionQuerySet(models.QuerySet["Question"]):
    def visible_to(self, user: User) -> Self:
        return self if user.is_superuser else self.filter(task__project__memberships__user=user)

    def open(self) -> Self:
        return self.filter(state=QuestionState.OPEN)

    def answered(self) -> Self:
        return self.filter(state=QuestionState.ANSWERED)


class Question(models.Model):
    """What a halted agent wants from a human.

    `items`: 1 or more of {question, header, options: [{label, description, preview}], multiSelect};
    `answers` maps each item's question to what was answered. `tool_use_id` is the call whose result
    the answer becomes; `tool_input` is that call's input as the agent wrote it.
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
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)
    answered_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="answers"
    )
    answered_via = models.CharField(max_length=20, choices=Channel, blank=True)
    answers: models.JSONField[dict[str, str], dict[str, str]] = models.JSONField(default=dict, blank=True)
    notes = models.TextField(blank=True)
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

    objects = QuestionQuerySet.as_manager()

    class Meta:
        ordering = ["asked_at", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["run", "tool_use_id"], name="one_question_per_call"),
            models.UniqueConstraint(fields=["task", "number"], name="one_question_per_number"),
            models.CheckConstraint(
                condition=Q(state="answered") ^ Q(answered_at=None),
                name="answered_has_a_time_and_nothing_else_does",
            ),
        ]
        indexes = [models.Index(fields=["state", "asked_at"])]

    def __str__(self) -> str:
        return self.headline

    @property
    def headline(self) -> str:
        return str(self.items[0]["question"]) if self.items else ""

    @property
    def is_open(self) -> bool:
        return self.state == QuestionState.OPEN

    @property
    def answers_in_order(self) -> dict[str, str]:
        """The answers in the order of the items: PostgreSQL's JSON does not keep that of keys."""
        asked = [str(item["question"]) for item in self.items]
        return {question: self.answers[question] for question in asked if question in self.answers}

    @property
    def answer_text(self) -> str:
        """The answer in one text, as histories and logs show it."""
        if len(self.items) <= 1:
            text = "".join(self.answers.values())
        else:
            text = "\n".join(f"{question}: {answer}" for question, answer in self.answers_in_order.items())
        return f"{text}\n\nNotes: {self.notes}" if self.notes else text

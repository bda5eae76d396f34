"""Transitions, which record changes of phases, and change rows for open pages."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import Max, Q
from django.db.models.functions import Now

from tasks_app.core.phases import Phase
from tasks_app.models.phased import PHASE_CHOICES
from tasks_app.models.sequence import Sequence
from tasks_app.models.step import Step
from tasks_app.models.task import Task
from tasks_app.models.user import User

#: Phases of a task whose beginning makes notifications (`tasks_app.notifications`).
ANNOUNCED = tuple(
    phase.value for phase in (Phase.WAITING_FOR_INPUT, Phase.FAILED, Phase.DONE, Phase.CANCELLED)
)

#: The end of the reason of a cancellation for which nothing else was a reason.
JUST_CANCELLED = " cancelled it"


class PhaseChange(models.Model):
    """The common base of transitions. Append-only."""

    source = models.CharField(max_length=20, choices=PHASE_CHOICES)
    target = models.CharField(max_length=20, choices=PHASE_CHOICES)
    at = models.DateTimeField(auto_now_add=True)
    reason = models.TextField(blank=True)
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


class Transition(PhaseChange):
    """One change of phase of a task, or of one of its steps."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="transitions")
    step = models.ForeignKey(
        Step, null=True, blank=True, on_delete=models.CASCADE, related_name="transitions"
    )
    announced_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When it was told to those who want to know."
    )
    message = models.TextField(
        blank=True, default="", db_default="", help_text="What the actor wrote to the agent."
    )
    after_run = models.PositiveBigIntegerField(
        null=True, blank=True, editable=False, help_text="The task's newest run when the message was written."
    )

    class Meta:
        ordering = ["at", "pk"]
        indexes = [
            models.Index(
                fields=["at"],
                condition=Q(step=None, announced_at=None, target__in=ANNOUNCED),
                name="transition_unannounced",
            )
        ]

    @property
    def why_cancelled(self) -> str:
        """The reason of a cancellation, such as a cost limit; empty if somebody just cancelled the task."""
        return "" if self.actor and self.reason.endswith(JUST_CANCELLED) else self.reason


class SequenceTransition(PhaseChange):
    """One change of phase of a sequence, with its current task or between two tasks.

    A separate table, because transitions of tasks make notifications.
    """

    sequence = models.ForeignKey(Sequence, on_delete=models.CASCADE, related_name="transitions")

    class Meta:
        ordering = ["at", "pk"]


class ChangeKind(models.TextChoices):
    PHASE = "phase", "a phase changed"
    QUESTION = "question", "a question was asked, answered or withdrawn"
    EVENTS = "events", "a run has more events"
    TASK = "task", "a task was created or changed"
    NOTICE = "notice", "people were told of it"


class ChangeQuerySet(models.QuerySet["Change"]):
    def prune_changes(self, older_than: timedelta) -> int:
        """Delete old change rows and return how many. The newest stays: browsers continue from its id."""
        newest = self.aggregate(newest=Max("pk"))["newest"]
        deleted, _ = self.filter(at__lt=Now() - older_than).exclude(pk=newest).delete()
        return deleted


class Change(models.Model):
    """Says that something of a task changed. Pages read the other rows."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="changes")
    kind = models.CharField(max_length=20, choices=ChangeKind)
    at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = ChangeQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} of task {self.task_id}"

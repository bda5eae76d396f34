"""A task, its lease, and the steps of its pipeline."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from tasks_app.models.people import User, within_reach
from tasks_app.models.phased import Phased
from tasks_app.models.project import Project
from tasks_app.models.sequence import Sequence
from tasks_app.state.phases import ENDED, Phase

if TYPE_CHECKING:
    from tasks_app.models.run import Run


class TaskQuerySet(models.QuerySet["Task"]):
    def visible_to(self, user: User) -> Self:
        reached = self.filter(within_reach(user, "project"))
        return reached if user.is_superuser else reached.filter(project__memberships__user=user)

    def free(self) -> Self:
        """Tasks that nobody holds: never claimed, let go, or held by somebody who stopped renewing."""
        return self.filter(Q(lease_expires=None) | Q(lease_expires__lt=Now()))

    def due(self) -> Self:
        """Tasks on which work can be done now, by the rows alone: what the sweeper rings for.

        A task that is `running` while nobody holds it lost its worker.
        """
        queued = Q(phase=Phase.PENDING, queued_at__isnull=False)
        reset_came = Q(phase=Phase.WAITING_FOR_RESET, resets_at__lte=Now())
        return self.free().filter(queued | reset_came | Q(phase=Phase.RUNNING))

    def claim(self, task_id: int, *, owner: str, seconds: float) -> int | None:
        """Take the lease of a due task; the new epoch, or None if there is nothing to take."""
        taken = (
            self.due()
            .filter(pk=task_id)
            .update(
                lease_owner=owner,
                lease_epoch=F("lease_epoch") + 1,
                lease_expires=Now() + timedelta(seconds=seconds),
            )
        )
        if not taken:
            return None
        return self.filter(pk=task_id, lease_owner=owner).values_list("lease_epoch", flat=True).first()

    def held(self, task_id: int, *, epoch: int) -> Self:
        """The task, if the holder of this epoch still has it."""
        return self.filter(pk=task_id, lease_epoch=epoch)


class Task(Phased):
    """One goal, run through one pipeline on one branch.

    `queued_at` is empty until somebody starts the task. The lease (`lease_owner`, `lease_epoch`,
    `lease_expires`) says who works on it: each claim raises the epoch, and each write of the holder
    names the epoch, so that a holder who lost the task cannot write to it.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="tasks")
    sequence = models.ForeignKey(
        Sequence, null=True, blank=True, on_delete=models.CASCADE, related_name="tasks"
    )
    file = models.CharField(
        max_length=300, blank=True,
        help_text="Its file: in its sequence's folder, or in the repository it was picked from.",
    )  # fmt: skip
    form_key = models.CharField(
        max_length=40,
        blank=True,
        editable=False,
        help_text="Of the form that made it: sent twice, made once.",
    )
    slug = models.CharField(max_length=160)
    title = models.CharField(max_length=200)
    text = models.TextField(help_text="The task file as written, front matter included.")
    body = models.TextField(help_text="The goal, without front matter.")
    pipeline = models.CharField(max_length=100)
    threshold = models.PositiveSmallIntegerField(default=0)
    resume = models.CharField(max_length=10, default="session")
    model = models.CharField(max_length=100, blank=True)
    wait_for_reset = models.BooleanField(default=False, help_text="Go on by itself after a usage limit.")
    max_turns = models.PositiveIntegerField(null=True, blank=True, help_text="Turns that one run may take.")
    max_cost_usd = models.FloatField(null=True, blank=True, help_text="Dollars that the whole task may cost.")
    auto_commit = models.BooleanField(default=False, help_text="Commit a checkpoint after each step.")
    ask_before: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, help_text="Patterns of tool calls that a human must approve."
    )
    branch = models.CharField(max_length=200)
    checkout = models.CharField(
        max_length=200, blank=True, help_text="The branch checked out in the workspace, if it is another."
    )
    base_commit = models.CharField(max_length=64, blank=True)
    head_commit = models.CharField(max_length=64, blank=True)
    reset_to = models.CharField(
        max_length=64, blank=True, help_text="The commit to put the files back to before the next run."
    )
    created_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="tasks"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True, blank=True)
    resets_at = models.DateTimeField(null=True, blank=True)
    paused_seconds = models.FloatField(default=0, help_text="Time spent waiting for humans and for limits.")
    lease_owner = models.CharField(max_length=100, blank=True, editable=False)
    lease_epoch = models.PositiveIntegerField(default=0, editable=False)
    lease_expires = models.DateTimeField(null=True, blank=True, editable=False)

    objects = TaskQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["project", "slug"], name="one_slug_per_project"),
            models.UniqueConstraint(
                fields=["sequence", "file"], condition=Q(sequence__isnull=False), name="one_task_per_file"
            ),
            models.UniqueConstraint(
                fields=["created_by", "form_key"], condition=~Q(form_key=""), name="one_task_per_form"
            ),
            models.CheckConstraint(condition=Q(threshold__lte=5), name="threshold_from_0_to_5"),
        ]
        indexes = [
            models.Index(fields=["created_at"]),
            models.Index(fields=["phase", "lease_expires"]),
            models.Index(fields=["project", "phase"]),
            models.Index(fields=["phase", "ended_at"]),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_ended(self) -> bool:
        return Phase(self.phase) in ENDED

    @property
    def not_started(self) -> bool:
        return self.phase == Phase.PENDING and self.queued_at is None


class Step(Phased):
    """One stage of the task's pipeline. `config` is the step's settings as they were at the start."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=100)
    config = models.JSONField()
    failures = models.PositiveSmallIntegerField(
        default=0, help_text="Failed attempts since a human last said go on."
    )
    first_run = models.PositiveIntegerField(
        default=1, help_text="The first run that counts: those before it are history since somebody retried."
    )
    base_commit = models.CharField(max_length=64, blank=True, help_text="The snapshot the step started from.")
    head_commit = models.CharField(max_length=64, blank=True, help_text="The snapshot after its last run.")

    class Meta:
        ordering = ["task", "position"]
        constraints = [
            models.UniqueConstraint(fields=["task", "position"], name="one_step_per_position"),
            models.UniqueConstraint(fields=["task", "name"], name="one_step_per_name"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def current_runs(self) -> models.QuerySet[Run]:
        """The runs that count, in order."""
        return self.runs.filter(number__gte=self.first_run)

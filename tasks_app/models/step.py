"""The steps of a task's pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from tasks_app.core.labels import STORED_LENGTH
from tasks_app.core.phases import (
    ANSWERED,
    NOT_BEGUN,
    NOT_RUN,
    NOT_RUN_AS_CANCELLED,
    PHASE_DISPLAYS,
    STOPPED_EARLY,
    Phase,
    PhaseDisplay,
)
from tasks_app.models.phased import Phased
from tasks_app.models.task import Task

if TYPE_CHECKING:
    from tasks_app.models.run import Run


class StepKind(models.TextChoices):
    WORK = "work", "a step of the pipeline"
    #: Added by the portal before all others: it asks what is unclear, see `config/planning.py`.
    CLARIFY = "clarify", "questions before work"


class StepQuerySet(models.QuerySet["Step"]):
    def with_plan(self) -> StepQuerySet:
        """Return the steps that wrote or changed the plan, in order."""
        return self.exclude(plan=None).exclude(plan="").order_by("position")


class Step(Phased):
    """One stage of the task's pipeline. `config` has the step's settings at the start of the task."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=20, choices=StepKind, default=StepKind.WORK, db_default=StepKind.WORK)
    config = models.JSONField()
    runs_on = models.CharField(
        max_length=STORED_LENGTH, blank=True, help_text="Labels that a worker must have, with commas."
    )
    failures = models.PositiveSmallIntegerField(
        default=0, help_text="Failed attempts since a human last said go on."
    )
    first_run = models.PositiveIntegerField(
        default=1, help_text="The first run that counts: those before it are history since somebody retried."
    )
    kept_from = models.PositiveIntegerField(
        default=1,
        db_default=1,
        help_text="The first run whose work is in the files: they were put back before it, if it is not 1.",
    )
    base_commit = models.CharField(max_length=64, blank=True, help_text="The snapshot the step started from.")
    base_ignored = models.CharField(
        max_length=64, blank=True, help_text="The list of files that git ignores, before the step."
    )
    head_commit = models.CharField(max_length=64, blank=True, help_text="The snapshot after its last run.")
    plan = models.TextField(  # noqa: DJ001 (None: it ended before plans were kept)
        null=True, blank=True, help_text="The plan (PLAN.md) that the step wrote, or changed."
    )

    objects = StepQuerySet.as_manager()

    class Meta:
        ordering = ["task_id", "position"]  # `task` would join the table of tasks for their order
        constraints = [
            models.UniqueConstraint(fields=["task", "position"], name="one_step_per_position"),
            models.UniqueConstraint(fields=["task", "name"], name="one_step_per_name"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def phase_display(self) -> PhaseDisplay:
        if self.phase in (Phase.PENDING, Phase.CANCELLED) and self.task.finished_early:
            return NOT_RUN if self.phase == Phase.PENDING else STOPPED_EARLY
        if self.phase == Phase.PENDING and self.task.phase == Phase.CANCELLED:
            return PHASE_DISPLAYS[Phase.CANCELLED] if self.started_at else NOT_RUN_AS_CANCELLED
        if self.phase == Phase.PENDING and self.started_at and self.task.can_be_undone:
            return ANSWERED
        if self.phase == Phase.PENDING and not self.started_at:
            return NOT_BEGUN
        return super().phase_display

    @property
    def lost_its_worker(self) -> bool:
        return self.phase == Phase.RUNNING and self.task.lost_its_worker

    @property
    def is_clarifying(self) -> bool:
        """Whether it only asks what is unclear, before the steps of the pipeline."""
        return self.kind == StepKind.CLARIFY

    @property
    def is_last(self) -> bool:
        """Whether no step of its task follows."""
        return all(one.position <= self.position for one in self.task.steps.all())

    @property
    def current_runs(self) -> models.QuerySet[Run]:
        """The runs that count, in order."""
        return self.runs.filter(number__gte=self.first_run)

"""Setups: how a workspace was made ready before agents worked in it (M5)."""

from __future__ import annotations

from typing import Any

from django.db import models

from tasks_app.models.task import Task


class SetupOutcome(models.TextChoices):
    """How a setup ended. Empty while it runs, or until the death of its worker is noticed."""

    DONE = "done", "done"
    FAILED = "failed", "failed"
    STOPPED = "stopped", "it was stopped"
    CRASHED = "crashed", "its worker died"


class SetupCache(models.TextChoices):
    """What became of the cache of a setup. Empty if it has none."""

    WAITS = "waits", "waits for the cache, which another task fills"
    USED = "used", "with the cache"
    FILLED = "filled", "filled the cache"
    UNUSED = "unused", "without the cache"


class Setup(models.Model):
    """One pass of the commands that `setup` in `cat-herder.yaml` names, in one new workspace.

    `reports` has a report of each command that has ended, in order: `command`, `output`, `exit_code`,
    `problem` (empty if it succeeded) and `seconds`. `current` is the command that runs.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="setups")
    number = models.PositiveIntegerField(help_text="Counts the setups of the task from 1.")
    outcome = models.CharField(max_length=10, choices=SetupOutcome, blank=True)
    current = models.TextField(blank=True, help_text="The command that runs; empty when none does.")
    reports: models.JSONField[list[dict[str, Any]], list[dict[str, Any]]] = models.JSONField(
        default=list, blank=True, help_text="The commands that have ended, with their output."
    )
    problem = models.TextField(blank=True, help_text="Why it failed.")
    cache = models.CharField(max_length=10, choices=SetupCache, blank=True, default="", db_default="")
    sandboxed = models.BooleanField(default=False)
    lease_epoch = models.PositiveIntegerField(default=0)
    data_dir = models.UUIDField(
        null=True,
        editable=False,
        help_text="The data directory of the worker host where it ran; empty for the portal's own.",
    )
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["task_id", "number"]
        constraints = [models.UniqueConstraint(fields=["task", "number"], name="one_setup_per_number")]

    def __str__(self) -> str:
        return f"setup {self.number} of {self.task}"

    @property
    def seconds(self) -> float | None:
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()

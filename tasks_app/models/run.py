"""Runs, which are processes of agents, and their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from django.db import models
from django.db.models import Max, Q

from tasks_app.core.storable import storable_text
from tasks_app.core.types import Usage
from tasks_app.models.step import Step


class Reason(models.TextChoices):
    """Why a run was started."""

    FIRST = "first", "first run"
    ANSWER = "answer", "after an answer"
    APPROVAL = "approval", "after an approval or denial"
    PLAN = "plan", "after the plan’s review"
    CHECK_FAILED = "check_failed", "after a failed check"
    LIMIT = "limit", "after a limit"
    CRASH = "crash", "after an interruption"
    RETRY = "retry", "tried again"
    REVIEW = "review", "after a review"


class Outcome(models.TextChoices):
    """How a run ended. Empty while it runs, or until the death of its worker is noticed."""

    FINISHED = "finished", "the agent ended its turn"
    ASKED = "asked", "the agent asked and stopped"
    FAILED = "failed", "the agent ended with an error"
    LIMIT = "limit", "a limit stopped it"
    INTERRUPTED = "interrupted", "it was stopped"
    CRASHED = "crashed", "its worker or its process was killed"
    LOST = "lost", "its session could not be resumed"
    UNDELIVERED = "undelivered", "an answer did not reach its model"


def stored_by_model(by_model: Mapping[str, Usage]) -> dict[str, list[float]] | None:
    """Return the usage of several models as `Run.by_model` stores it; None for at most one."""
    if len(by_model) < 2:
        return None
    return {storable_text(name)[:100]: list(astuple(usage)) for name, usage in by_model.items()}


class Run(models.Model):
    """One agent process for one step of one task.

    `checks` holds the reports of the checks after a finished run, in order; None until they ran.
    """

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="runs")
    number = models.PositiveIntegerField()
    reason = models.CharField(max_length=20, choices=Reason)
    prompt = models.TextField(
        blank=True, help_text="What the agent was told; empty when only an answer was handed in."
    )
    session_id = models.UUIDField()
    resumed = models.BooleanField(
        default=False, help_text="Whether it went on in the session of an earlier run."
    )
    threshold = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="How readily the agent was to ask in this run."
    )
    outcome = models.CharField(max_length=20, choices=Outcome, blank=True)
    error = models.TextField(blank=True)
    not_done = models.TextField(
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Why its agent says that the task is not done; empty once the task has failed for that.",
    )
    checks = models.JSONField(null=True, blank=True)
    head_commit = models.CharField(max_length=64, blank=True, help_text="The workspace as the agent left it.")
    checked_commit = models.CharField(
        max_length=64, blank=True, help_text="The workspace as the checks left it, where a guard must know."
    )
    head_ignored = models.CharField(
        max_length=64, blank=True, help_text="The list of files that git ignores, as the agent left them."
    )
    checked_ignored = models.CharField(
        max_length=64, blank=True, help_text="The list of files that git ignores, as the checks left them."
    )
    model = models.CharField(max_length=100, blank=True)
    by_model = models.JSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="Usage of each model, if there were several.",
    )
    sandboxed = models.BooleanField(default=False)
    network = models.CharField(
        max_length=10, blank=True, help_text="What its processes could reach: full, model or none."
    )
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    cache_read_tokens = models.PositiveBigIntegerField(default=0)
    cost_usd = models.FloatField(default=0)
    metered = models.BooleanField(
        default=False, help_text="Whether the API key proxy counted tokens and cost, not the agent itself."
    )
    reported_cost_usd = models.FloatField(
        null=True, blank=True, help_text="What the agent itself reported as the cost of this run."
    )
    lease_epoch = models.PositiveIntegerField(default=0)
    data_dir = models.UUIDField(
        null=True,
        editable=False,
        help_text="The data directory of the worker host where it ran; empty for the portal's own.",
    )
    compacted_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When its events became compressed blocks."
    )

    class Meta:
        ordering = ["step_id", "number"]  # the ids of a task's steps ascend with their positions
        constraints = [models.UniqueConstraint(fields=["step", "number"], name="one_run_per_number")]
        indexes = [
            models.Index(fields=["started_at"]),
            models.Index(fields=["ended_at"], condition=Q(compacted_at=None), name="run_not_compacted"),
        ]

    def __str__(self) -> str:
        return f"run {self.number} of {self.step}"

    @property
    def usage(self) -> Usage:
        return Usage(
            self.input_tokens,
            self.output_tokens,
            self.cache_write_tokens,
            self.cache_read_tokens,
            self.cost_usd,
        )

    @property
    def usage_by_model(self) -> dict[str, Usage]:
        if not self.by_model:
            return {self.model: self.usage}
        return {name: Usage(*amounts) for name, amounts in self.by_model.items()}

    @property
    def agent_reports_other_cost(self) -> bool:
        """Whether the cost that the agent reported differs from the counted one by more than a tenth."""
        if not self.metered or self.reported_cost_usd is None:
            return False
        return abs(self.reported_cost_usd - self.cost_usd) > max(0.001, self.cost_usd / 10)

    def next_seq(self) -> int:
        """Return the next free number. Blocks have the first events of a run, so they count without rows."""
        last: int | None = self.events.aggregate(last=Max("seq"))["last"]
        if last is None:
            last = self.event_blocks.aggregate(last=Max("last_seq"))["last"]
        return 0 if last is None else last + 1


class EventKind(models.TextChoices):
    TEXT = "text", "what the agent said"
    THINKING = "thinking", "what the agent thought"
    TOOL_USE = "tool_use", "a tool call"
    TOOL_RESULT = "tool_result", "the result of a tool call"
    QUESTION = "question", "the agent asked"
    ANSWER = "answer", "a human answered"
    CHECK = "check", "a check ran"
    NOTE = "note", "something the portal noted"
    ERROR = "error", "something went wrong"
    RESULT = "result", "the end of the run, as the agent reported it"
    SYSTEM = "system", "the agent's own bookkeeping"
    UNKNOWN = "unknown", "a message of a kind that is not known"


class Event(models.Model):
    """One event of a run. Append-only; `payload` is for people, `raw` is the agent's message."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=20, choices=EventKind)
    at = models.DateTimeField()
    payload = models.JSONField(default=dict)
    raw = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ["run_id", "seq"]  # `run` would join runs, steps and tasks for their order
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_event_per_seq")]

    def __str__(self) -> str:
        return f"{self.kind} {self.seq}"

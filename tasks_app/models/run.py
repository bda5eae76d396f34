"""Runs, which are processes of agents, with their events, transcripts and setups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, Self

from django.db import models
from django.db.models import F, Max, Q
from django.utils import timezone

from tasks_app.core.text import storable, storable_text
from tasks_app.core.types import Usage
from tasks_app.models.step import Step
from tasks_app.models.task import Task


class Reason(models.TextChoices):
    """Why a run was started."""

    FIRST = "first", "first run"
    ANSWER = "answer", "resumed with an answer"
    #: A rule ended the question, because nobody had answered.
    NO_ANSWER = "no_answer", "resumed without an answer"
    #: Of runs from before the two below it; and if the approval was taken back meanwhile.
    APPROVAL = "approval", "after an approval or denial"
    APPROVED = "approved", "after an approval"
    DENIED = "denied", "after a denial"
    PLAN = "plan", "after the plan’s review"
    SET_ASIDE = "set_aside", "after its calls were set aside"
    CHECK_FAILED = "check_failed", "after a failed check"
    LIMIT = "limit", "after a limit"
    CRASH = "crash", "after an interruption"
    RESUMED = "resumed", "resumed after it was cancelled"
    RETRY = "retry", "tried again"
    REVIEW = "review", "after a review"
    UNREAD_QUESTION = "unread_question", "its last message asked something"


class Outcome(models.TextChoices):
    """How a run ended. Empty while it runs, or until the death of its worker is noticed."""

    FINISHED = "finished", "finished"
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
    needed_usd = models.FloatField(
        null=True, blank=True, editable=False,
        help_text="What its next request needed of a month's budget, which left less and so ended the run.",
    )  # fmt: skip
    rehearsed = models.BooleanField(
        null=True, blank=True, editable=False,
        help_text="Whether a script played the model; empty in rows from before this was stored.",
    )  # fmt: skip
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
    def reason_label(self) -> str:
        """Why it was started, as people read it. Names who answered, if that is known."""
        if self.reason != Reason.ANSWER:
            return str(self.get_reason_display())
        settled = sorted(self.answers_handed_in.all(), key=lambda question: question.number)
        names = list(dict.fromkeys(filter(None, (question.answerer for question in settled))))
        if not names:
            return str(Reason.ANSWER.label)
        if all(question.is_dismissed for question in settled):
            return f"resumed after {' and '.join(names)} skipped the question"
        if len(names) == 1:
            return f"resumed with {names[0]}’s answer"
        return f"resumed with the answers of {' and '.join(names)}"

    @property
    def seconds(self) -> float:
        """The seconds from the start of the agent's process to its end or now."""
        return ((self.ended_at or timezone.now()) - self.started_at).total_seconds()

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
        if last is None:
            return 0
        return last + 1


def prefetch_answerers(runs: Iterable[Run]) -> None:
    """Fetch with few queries what the `reason_label` of these runs names."""
    after_answers = [run for run in runs if run.reason == Reason.ANSWER]
    names = ("answers_handed_in__answered_by", "answers_handed_in__applied")
    models.prefetch_related_objects(after_answers, *names)


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


# Transcripts of the agent's sessions, stored so that any worker can resume a session.


class SessionEntryQuerySet(models.QuerySet["SessionEntry"]):
    """Keys are mappings with project_key and session_id, and subpath for the transcript of a sub-agent."""

    def of(self, key: Mapping[str, str]) -> Self:
        return self.filter(
            project_key=key["project_key"], session_id=key["session_id"], subpath=key.get("subpath", "")
        )

    def append(self, key: Mapping[str, str], entries: Iterable[Mapping[str, Any]]) -> None:
        columns = {name: key.get(name, "") for name in ("project_key", "session_id", "subpath")}
        self.bulk_create(SessionEntry(**columns, entry=storable(entry)) for entry in entries)

    def ends_with(self, key: Mapping[str, str], entries: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether these entries are the last ones."""
        last = self.of(key).order_by("-pk").values_list("entry", flat=True)[: len(entries)]
        return list(last)[::-1] == [storable(entry) for entry in entries]

    def entries(self, key: Mapping[str, str]) -> list[dict[str, Any]] | None:
        """Return the entries in order, or None for an unknown key."""
        return list(self.of(key).order_by("pk").values_list("entry", flat=True)) or None

    def subpaths(self, key: Mapping[str, str]) -> list[str]:
        rows = self.filter(project_key=key["project_key"], session_id=key["session_id"]).exclude(subpath="")
        return list(rows.order_by("subpath").values_list("subpath", flat=True).distinct())


class SessionEntry(models.Model):
    """One line of a session's transcript, as the agent wrote it. `subpath` names sub-agent transcripts."""

    project_key = models.CharField(max_length=300)
    session_id = models.CharField(max_length=100)
    subpath = models.CharField(max_length=300, blank=True)
    entry = models.JSONField()
    at = models.DateTimeField(auto_now_add=True)

    objects = SessionEntryQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        indexes = [models.Index(fields=["session_id", "project_key", "subpath"])]
        verbose_name_plural = "session entries"

    def __str__(self) -> str:
        return f"{self.session_id} {self.pk}"


# Setups: how a workspace was made ready before agents worked in it (M5).


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
        if self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


# Events of ended runs, compressed.


class EventBlock(models.Model):
    """Consecutive events of a run in one compressed row, in place of their own rows.

    `history/events/blocks.py` has the format, and `history/events/reading.py` reads rows and blocks alike.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="event_blocks")
    first_seq = models.PositiveIntegerField()
    last_seq = models.PositiveIntegerField()
    first_id = models.PositiveBigIntegerField(help_text="The lowest id of its events; ids stay the same.")
    last_id = models.PositiveBigIntegerField(help_text="The highest id of its events.")
    kinds: models.JSONField[dict[str, int], dict[str, int]] = models.JSONField(
        help_text="How many events of each kind it has."
    )
    failures = models.PositiveIntegerField(help_text="How many of its events are failures.")
    content = models.BinaryField()

    class Meta:
        ordering = ["run_id", "first_seq"]
        indexes = [models.Index(fields=["last_id"], name="event_block_newest")]
        constraints = [
            models.UniqueConstraint(fields=["run", "first_seq"], name="one_event_block_per_seq"),
            models.CheckConstraint(
                condition=Q(first_seq__lte=F("last_seq"), first_id__lte=F("last_id")),
                name="event_block_is_in_order",
            ),
        ]

    def __str__(self) -> str:
        return f"events {self.first_seq} to {self.last_seq}"

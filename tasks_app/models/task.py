"""A task and its lease."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Self

from django.db import connection, models, transaction
from django.db.models import Case, Count, F, Q, Value, When
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.config.task_file import PriorityName
from tasks_app.core.phases import (
    ANSWERED,
    ENDED,
    EXPORTED,
    FINISHED_EARLY,
    FINISHING_EARLY,
    LAST_STEP_EARLY,
    ONLY_REHEARSED,
    RESUMABLE,
    WAITING_FOR_BUDGET,
    Phase,
    PhaseDisplay,
)
from tasks_app.core.types import JsonObject
from tasks_app.models.installation import new_folder_key
from tasks_app.models.phased import Phased, shown_in
from tasks_app.models.project import Project
from tasks_app.models.sequence import Sequence
from tasks_app.models.user import User

#: Seconds after which a lease ends unless it is renewed.
LEASE_SECONDS = 20.0
#: The longest pause before a task is tried again after a temporary fault.
LONGEST_RETRY_SECONDS = 300.0
#: A lease that ends more than this factor times its length from now was written before the clock was set
#: back. Twice the length, because a statement may wait for a row lock while its "now" grows old.
_MAX_LEASE_FACTOR = 2


class Priority(models.IntegerChoices):
    """How early a waiting task has its turn: the order among a person's tasks, a head start among people."""

    LOW = -1, "low"
    NORMAL = 0, "normal"
    HIGH = 1, "high"


class EarlyEnd(models.TextChoices):
    """Whether a human had a task finished early at its soft cost limit, or it was only rehearsed."""

    ASKED = "asked", "is to be finished early"
    ENDED = "ended", "was finished early"
    LAST_STEP = "last_step", "was finished early in its last step"
    REHEARSED = "rehearsed", "was only rehearsed"


def priority_name(value: int) -> PriorityName:
    """Return the name of a stored priority, as people and programs write it."""
    names: dict[int, PriorityName] = {
        Priority.LOW: "low", Priority.NORMAL: "normal", Priority.HIGH: "high"
    }  # fmt: skip
    return names[value]


#: A task whose log was not removed since it ended. One that was resumed after that has a log again.
HAS_LOG = Q(log_removed_at=None) | Q(log_removed_at__lt=F("ended_at"))


def _free() -> Q:
    too_far = Now() + timedelta(seconds=_MAX_LEASE_FACTOR * LEASE_SECONDS)
    return Q(lease_expires=None) | Q(lease_expires__lt=Now()) | Q(lease_expires__gt=too_far)


def lost_its_worker() -> Q:
    """Return the condition for running tasks that were claimed and have no valid lease."""
    return Q(phase=Phase.RUNNING, lease_epoch__gt=0) & _free()


class TaskQuerySet(models.QuerySet["Task"]):
    def free(self) -> Self:
        """Return tasks without a valid lease: never claimed, released, or not renewed.

        A lease that ends too far in the future is invalid too: the clock was set back.
        """
        return self.filter(_free())

    def due(self) -> Self:
        """Return tasks that a worker can work on now; the sweeper queues these.

        A `running` task without a lease has lost its worker. A pause that ends too far in the future is
        ignored: the clock was set back.
        """
        queued = Q(phase=Phase.PENDING, queued_at__isnull=False)
        limit_reset = Q(phase=Phase.WAITING_FOR_RESET, resets_at__lte=Now())
        too_far = Now() + timedelta(seconds=2 * LONGEST_RETRY_SECONDS)
        may_retry = Q(retry_at=None) | Q(retry_at__lte=Now()) | Q(retry_at__gt=too_far)
        settled = Q(undo_until=None) | Q(undo_until__lte=Now()) | Q(undo_until__gt=too_far)
        return self.free().filter(((queued | limit_reset) & may_retry & settled) | Q(phase=Phase.RUNNING))

    def without_worker(self) -> Self:
        """Return running tasks that have lost their worker."""
        return self.filter(lost_its_worker())

    def in_phases(self, *phases: str) -> Self:
        """Return tasks whose `shown_phase` is one of these."""
        return self.filter(shown_in(phases, lost=lost_its_worker()))

    def count_by_phase(self) -> dict[str, int]:
        """Return the number of tasks by `shown_phase`; phases without tasks are left out."""
        shown = Case(When(lost_its_worker(), then=Value(Phase.PENDING)), default=F("phase"))
        return dict(self.order_by().values_list(shown).annotate(Count("pk")))

    def worked_on(self) -> Self:
        """Return tasks that count under the limits of projects and people: running, or just claimed.

        A running task that has lost its worker keeps its place, because it goes on as soon as one takes it.
        """
        claimed = Q(lease_expires__gt=Now(), phase__in=(Phase.PENDING, Phase.WAITING_FOR_RESET))
        return self.filter(Q(phase=Phase.RUNNING) | claimed)

    def claim(self, task_id: int, *, owner: str, seconds: float) -> int | None:
        """Claim the lease of a due task; return the new epoch, or None if it is not due."""
        return self.due().take(task_id, owner=owner, seconds=seconds)

    def take(self, task_id: int, *, owner: str, seconds: float) -> int | None:
        """Claim the lease of this task if it is in this queryset and free; return the new epoch, or None.

        From here on no answer can be taken back (see `end_undo`).
        """
        taken = (
            self.free()
            .filter(pk=task_id)
            .update(
                lease_owner=owner,
                lease_epoch=F("lease_epoch") + 1,
                lease_expires=Now() + timedelta(seconds=seconds),
                undo_until=None,
            )
        )
        if not taken:
            return None
        held = Task.objects.filter(pk=task_id, lease_owner=owner)
        return held.values_list("lease_epoch", flat=True).first()

    def end_undo(self, task_id: int) -> bool:
        """Return whether an answer can be taken back: no worker claimed the task, and its time is not over.

        One conditional UPDATE on the row that `take` updates too, so that only one of the two succeeds.
        """
        waiting = self.filter(pk=task_id, phase=Phase.PENDING, undo_until__gt=Now())
        return bool(waiting.update(undo_until=None))

    def undo_ends_within(self, time: timedelta, task_id: int) -> bool:
        """Return whether an answer can still be taken back, but not for longer than `time`."""
        waiting = self.filter(pk=task_id, phase=Phase.PENDING, undo_until__gt=Now())
        return waiting.filter(undo_until__lt=Now() + time).exists()

    def held(self, task_id: int, *, epoch: int) -> Self:
        """Return the task if the holder of this epoch still has the lease."""
        return self.filter(pk=task_id, lease_epoch=epoch)

    def held_by(self, leases: Collection[tuple[int, int]]) -> Self:
        """Return the tasks of these leases (task id and epoch) that were neither released nor taken over."""
        leased = reduce(or_, (Q(pk=task_id, lease_epoch=epoch) for task_id, epoch in leases), Q(pk__in=[]))
        return self.filter(leased).exclude(lease_owner="")

    def renew(self, leases: Collection[tuple[int, int]], *, seconds: float) -> int:
        """Extend these leases to `seconds` from now; return how many were extended.

        On PostgreSQL rows that somebody has locked are left out: waiting for one of them would cost this
        process all its other leases.
        """
        held, until = self.held_by(leases), Now() + timedelta(seconds=seconds)
        if not connection.features.has_select_for_update_skip_locked:
            return held.update(lease_expires=until)
        with transaction.atomic():
            free = list(held.select_for_update(skip_locked=True).values_list("pk", flat=True))
            return self.filter(pk__in=free).update(lease_expires=until)


class Task(Phased):
    """One goal, run through one pipeline on one branch.

    `queued_at` is empty until somebody starts the task. The lease (`lease_owner`, `lease_epoch`,
    `lease_expires`) says which worker works on it: each claim raises the epoch, and each write of the holder
    checks it, so that a worker that lost the lease cannot write any more.
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
    soft_cost_usd = models.FloatField(
        null=True, blank=True, help_text="Dollars after which it stops and asks whether to go on."
    )
    early_end = models.CharField(
        max_length=10, choices=EarlyEnd, blank=True, default="", db_default="", editable=False,
        help_text="Whether it is to be finished early, or was; empty: neither.",
    )  # fmt: skip
    auto_commit = models.BooleanField(default=False, help_text="Commit a checkpoint after each step.")
    publish_plan = models.BooleanField(default=False, help_text="Leave PLAN.md in the result.")
    publish: models.JSONField[JsonObject | None, JsonObject | None] = models.JSONField(
        null=True, blank=True, help_text="How its pipeline publishes the result; null: it does not."
    )
    publish_due = models.BooleanField(
        default=False, editable=False, help_text="Done, and to be published by its pipeline."
    )
    ask_before: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, help_text="Patterns of tool calls that a human must approve."
    )
    ask: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, db_default=models.Value([], models.JSONField()),
        help_text="The people and groups whom its questions are put to, by its own choice.",
    )  # fmt: skip
    watchers: models.ManyToManyField[User, Any] = models.ManyToManyField(
        User, blank=True, related_name="watched_tasks",
        help_text="Users who are notified as if it were their task and its questions were asked of them.",
    )  # fmt: skip
    setup: models.JSONField[JsonObject | None, JsonObject | None] = models.JSONField(
        null=True, blank=True, help_text="How its workspace is made ready; null: it is not."
    )
    toolchains = models.CharField(
        max_length=3000, blank=True, default="", db_default="",
        help_text="Toolchains and folders of the machine that it uses, with commas between them.",
    )  # fmt: skip
    submodules = models.BooleanField(
        default=False, db_default=False, help_text="Fetch submodules into a new workspace."
    )
    lfs = models.BooleanField(
        default=False, db_default=False, help_text="Fetch contents of Git LFS into a new workspace."
    )
    branch = models.CharField(max_length=200)
    checkout = models.CharField(
        max_length=200, blank=True, help_text="The branch checked out in the workspace, if it is another."
    )
    base_commit = models.CharField(max_length=64, blank=True)
    head_commit = models.CharField(max_length=64, blank=True)
    left_out = models.JSONField(
        default=list, blank=True, help_text="Sentences on what the workspace holds and the result does not."
    )
    exports_decisions = models.BooleanField(
        default=False, db_default=False, editable=False,
        help_text="The portal wrote its result: decisions as files. It has no steps.",
    )  # fmt: skip
    reset_to = models.CharField(
        max_length=64, blank=True, help_text="The commit to put the files back to before the next run."
    )
    merge: models.JSONField[JsonObject | None, JsonObject | None] = models.JSONField(
        null=True, blank=True, editable=False, help_text="The last merge that its agent was asked to resolve."
    )
    merged_commit = models.CharField(
        max_length=64, blank=True,
        help_text="The commit of the project's branch that the agent merged: changes are shown from there.",
    )  # fmt: skip
    folder_key = models.CharField(
        max_length=16,
        blank=True,
        editable=False,
        default=new_folder_key,
        help_text="Random part of the name of its folder; empty in rows from before there was one.",
    )
    created_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="tasks"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True, blank=True)
    resets_at = models.DateTimeField(null=True, blank=True)
    waits_for_budget = models.BooleanField(
        default=False, editable=False,
        help_text="What it waits for, if it waits for a reset, is a budget of the next month.",
    )  # fmt: skip
    failure_dismissed = models.BooleanField(
        default=False, db_default=False, editable=False,
        help_text="Somebody said that its failure needs nobody; false again as soon as it moves.",
    )  # fmt: skip
    fault = models.TextField(
        blank=True,
        editable=False,
        help_text="What was in the way last that passes by itself.",
    )
    fault_at = models.DateTimeField(null=True, blank=True, editable=False)
    faults = models.PositiveSmallIntegerField(
        default=0, editable=False, help_text="Faults in a row that pass by themselves."
    )
    retry_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Not tried again before, after a fault."
    )
    undo_until = models.DateTimeField(
        null=True, blank=True, editable=False,
        help_text="No worker claims it before, so that the last answer can be taken back.",
    )  # fmt: skip
    priority = models.SmallIntegerField(
        choices=Priority.choices, default=Priority.NORMAL, help_text="Its place among the tasks that wait."
    )
    paused_seconds = models.FloatField(default=0, help_text="Time spent waiting for humans and for limits.")
    idle_seconds = models.FloatField(
        default=0, db_default=0, editable=False, help_text="Time from an end until it was resumed."
    )
    left_by: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, editable=False, db_default=models.Value([], models.JSONField()),
        help_text="Hosts that could not fetch its submodules and left it to others.",
    )  # fmt: skip
    log_removed_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When its log was removed, because it was old."
    )
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
            models.CheckConstraint(condition=Q(priority__in=(-1, 0, 1)), name="priority_is_known"),
        ]
        indexes = [
            models.Index(fields=["created_at"]),
            models.Index(fields=["phase", "lease_expires"]),
            models.Index(fields=["project", "phase"]),
            models.Index(fields=["phase", "ended_at"]),
            models.Index(fields=["id"], condition=Q(publish_due=True), name="task_publish_due"),
            models.Index(fields=["ended_at"], condition=HAS_LOG, name="task_has_log"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def phase_display(self) -> PhaseDisplay:
        if self.phase == Phase.WAITING_FOR_RESET and self.waits_for_budget:
            return WAITING_FOR_BUDGET
        if self.finished_early:
            return FINISHED_EARLY
        if self.ended_early:
            return LAST_STEP_EARLY
        if self.only_rehearsed:
            return ONLY_REHEARSED
        if self.exports_decisions:
            return EXPORTED
        if self.shown_phase == Phase.RUNNING and self.is_finishing_early:
            return FINISHING_EARLY
        if self.can_be_undone:
            return ANSWERED
        return super().phase_display

    @property
    def worked_since(self) -> datetime | None:
        """When a running task would have started if it had worked without a break; None before its start."""
        if self.started_at is None:
            return None
        return self.started_at + timedelta(seconds=self.paused_seconds + self.idle_seconds)

    @property
    def worked_seconds(self) -> float | None:
        """The seconds of work of a task that is running; None before its start."""
        if self.worked_since is None:
            return None
        return max(0.0, (timezone.now() - self.worked_since).total_seconds())

    @property
    def can_be_undone(self) -> bool:
        """Whether the answer for which it waited can still be taken back."""
        until = self.undo_until
        return self.phase == Phase.PENDING and until is not None and until > timezone.now()

    @property
    def lost_its_worker(self) -> bool:
        """The same as `lost_its_worker()` for rows."""
        if self.phase != Phase.RUNNING or self.lease_epoch == 0:
            return False
        now = timezone.now()
        latest = now + timedelta(seconds=_MAX_LEASE_FACTOR * LEASE_SECONDS)
        return self.lease_expires is None or not now <= self.lease_expires <= latest

    @property
    def is_finishing_early(self) -> bool:
        """Whether a human has decided that it ends with its present step."""
        return self.early_end == EarlyEnd.ASKED

    @property
    def finished_early(self) -> bool:
        """Whether it is done without all of its steps, because a human decided so at its soft cost limit."""
        return self.phase == Phase.DONE and self.early_end == EarlyEnd.ENDED

    @property
    def ended_early(self) -> bool:
        """The same, or a human decided so in its last step, after which none was left."""
        return self.phase == Phase.DONE and self.early_end in (EarlyEnd.ENDED, EarlyEnd.LAST_STEP)

    @property
    def only_rehearsed(self) -> bool:
        """Whether it is done, but only a script has played the model and nothing was changed."""
        return self.phase == Phase.DONE and self.early_end == EarlyEnd.REHEARSED

    @property
    def can_resume(self) -> bool:
        """Whether a human can resume it: it stopped before all of its steps were done."""
        return Phase(self.phase) in RESUMABLE or self.finished_early

    @property
    def is_ended(self) -> bool:
        return Phase(self.phase) in ENDED

    @property
    def waits_for_retry(self) -> bool:
        """Whether a temporary fault stopped the task, and it will be tried again."""
        return self.phase in (Phase.PENDING, Phase.WAITING_FOR_RESET) and self.retry_at is not None

    @property
    def publishing_pipeline(self) -> str:
        """The name of the pipeline that publishes the result: in a sequence the first task's."""
        if self.sequence_id is None:
            return self.pipeline
        first = Task.objects.filter(sequence=self.sequence_id).order_by("pk")[:1]
        return first.values_list("pipeline", flat=True).get()

    @property
    def not_started(self) -> bool:
        return self.phase == Phase.PENDING and self.queued_at is None

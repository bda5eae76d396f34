"""Heartbeats of workers, and the tokens of worker hosts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import Exists, Q
from django.db.models.functions import Now

from tasks_app.core.labels import labels_in_words
from tasks_app.sandbox import EnforcedLimit

#: Seconds between two heartbeats of a worker.
BEAT_SECONDS = 3.0
#: A worker without a heartbeat for this long is taken as dead. The supervisor restarts one sooner.
ALIVE_PERIOD = timedelta(seconds=15)
#: A worker without a heartbeat for this long is not awaited any longer: an update or a reboot takes less.
KNOWN_PERIOD = timedelta(minutes=10)
KEPT = timedelta(days=1)
PROBLEM_LENGTH = 300


class WorkerBeatQuerySet(models.QuerySet["WorkerBeat"]):
    def seen_recently(self) -> Self:
        """Return workers with a recent heartbeat, including ones that have ended and are being restarted.

        A heartbeat in the future was written before the clock was set back, and is ignored.
        """
        return self.filter(seen_at__gt=Now() - ALIVE_PERIOD, seen_at__lt=Now() + ALIVE_PERIOD)

    def alive(self) -> Self:
        return self.seen_recently().filter(ended=False)

    def known(self) -> Self:
        """Return workers that take tasks or may soon: also drained ones and those that may be restarting."""
        seen = self.filter(seen_at__gt=Now() - KNOWN_PERIOD, seen_at__lt=Now() + ALIVE_PERIOD)
        return seen.filter(Q(problem="") | Q(draining=True))

    def idle(self) -> Self:
        """Return workers that run but take no tasks."""
        return self.alive().exclude(problem="")

    def unsandboxed(self) -> Self:
        """Return workers that run agents without a sandbox."""
        return self.alive().exclude(unsandboxed="")

    def ip_addresses(self) -> set[str]:
        """Return the addresses of machines where agents may work, also under a worker that is late."""
        rows = self.filter(ended=False, seen_at__gt=Now() - KNOWN_PERIOD)
        return {address for row in rows.values_list("ip_addresses", flat=True) for address in row or ()}

    def some_takes_tasks(self) -> Exists:
        """Return an EXISTS expression, for use within another query."""
        return Exists(self.seen_recently().filter(problem=""))

    def beat(
        self,
        *,
        host: str,
        pid: int,
        slots: int,
        busy: int,
        version: str,
        ended: bool = False,
        problem: str = "",
        started: bool = False,
        labels: Iterable[str] = (),
        unsandboxed: str = "",
        limits: Iterable[tuple[str, str, str]] = (),
        ip_addresses: Iterable[str] = (),
    ) -> bool:
        """Record that this worker is alive, or that it has just ended. Return whether it is to be drained.

        One that has just `started` may have the process id of an earlier one; in a container it always has.
        """
        values = {
            "slots": slots,
            "labels": sorted(labels),
            "busy": busy,
            "version": version,
            "ended": ended,
            "problem": problem[:PROBLEM_LENGTH],
            "unsandboxed": unsandboxed[:PROBLEM_LENGTH],
            "limits": list(limits),
            "ip_addresses": sorted(ip_addresses),
            "seen_at": Now(),
        }
        fresh = {**values, "started_at": Now(), "draining": False}
        if started:
            values = fresh
        row, _ = self.update_or_create(host=host, pid=pid, defaults=values, create_defaults=fresh)
        return row.draining

    def prune(self) -> int:
        """Delete workers that were not seen for KEPT; return how many."""
        return self.filter(seen_at__lt=Now() - KEPT).delete()[0]


class WorkerBeat(models.Model):
    """One worker process. All times are the database's, so that clocks of machines may differ."""

    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=40, blank=True)
    slots = models.PositiveSmallIntegerField(help_text="Tasks that it can work on at the same time.")
    labels: models.JSONField[list[str], list[str]] = models.JSONField(
        default=list, blank=True, help_text="What it has, as steps ask for it in runsOn."
    )
    busy = models.PositiveSmallIntegerField(default=0, help_text="Tasks that it works on now.")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    ended = models.BooleanField(default=False, help_text="It said goodbye.")
    draining = models.BooleanField(default=False, help_text="It is to take no more tasks.")
    problem = models.CharField(
        max_length=PROBLEM_LENGTH, blank=True, help_text="Why it takes no tasks; empty if it does."
    )

    unsandboxed = models.CharField(
        max_length=PROBLEM_LENGTH, blank=True, default="", db_default="",
        help_text="Why its agents have no sandbox; empty if they have one.",
    )  # fmt: skip
    limits: models.JSONField[list[list[str]] | None, list[list[str]] | None] = models.JSONField(
        null=True, blank=True,
        help_text="Limits of its agents: name, value, and what enforces it. Older versions do not tell.",
    )  # fmt: skip
    ip_addresses: models.JSONField[list[str] | None, list[str] | None] = models.JSONField(
        null=True, blank=True,
        help_text="From where its agents may reach the portal. Older versions do not tell.",
    )  # fmt: skip

    objects = WorkerBeatQuerySet.as_manager()

    class Meta:
        ordering = ["-seen_at"]
        constraints = [models.UniqueConstraint(fields=["host", "pid"], name="one_beat_per_process")]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def enforced_limits(self) -> list[EnforcedLimit]:
        """The limits of its agents, with what enforces each."""
        return [EnforcedLimit(*row) for row in self.limits or ()]

    @property
    def unenforced_limits(self) -> list[EnforcedLimit]:
        """The limits that are set there and that nothing enforces."""
        return [limit for limit in self.enforced_limits if limit.is_set and not limit.by]

    @property
    def labels_in_words(self) -> str:
        return labels_in_words(self.labels) if self.labels else ""


class WorkerToken(models.Model):
    """The token of a worker host, of which only a digest is stored. A revoked name can be used again."""

    name = models.CharField(max_length=30, unique=True)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

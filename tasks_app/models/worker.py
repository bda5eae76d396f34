"""Which workers there are: each says every few seconds that it lives."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import Exists
from django.db.models.functions import Now

#: How often a worker says that it lives.
BEAT_SECONDS = 3.0
#: Without a word for so long it is taken as gone. A worker that died is started again well within it.
GRACE = timedelta(seconds=15)
KEPT = timedelta(days=1)


class WorkerBeatQuerySet(models.QuerySet["WorkerBeat"]):
    def heard_lately(self) -> Self:
        """Workers that were there within the grace; of one that ended another may be taking the place.

        A beat that lies ahead was written before the clock was set back, and says nothing.
        """
        return self.filter(seen_at__gt=Now() - GRACE, seen_at__lt=Now() + GRACE)

    def alive(self) -> Self:
        return self.heard_lately().filter(ended=False)

    def some_heard_lately(self) -> Exists:
        """For a query that asks for something else as well."""
        return Exists(self.heard_lately())

    def beat(self, *, host: str, pid: int, slots: int, busy: int, version: str, ended: bool = False) -> None:
        """Note that this worker lives, or that it has just ended."""
        said = {"slots": slots, "busy": busy, "version": version, "ended": ended, "seen_at": Now()}
        self.update_or_create(
            host=host, pid=pid, defaults=said, create_defaults={**said, "started_at": Now()}
        )

    def prune(self) -> int:
        """Delete those that were not heard of for KEPT; how many."""
        return self.filter(seen_at__lt=Now() - KEPT).delete()[0]


class WorkerBeat(models.Model):
    """One worker process. All times are the database's, so that clocks of several machines do not matter."""

    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    version = models.CharField(max_length=40, blank=True)
    slots = models.PositiveSmallIntegerField(help_text="Tasks that it can work on at the same time.")
    busy = models.PositiveSmallIntegerField(default=0, help_text="Tasks that it works on now.")
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    ended = models.BooleanField(default=False, help_text="It said goodbye.")

    objects = WorkerBeatQuerySet.as_manager()

    class Meta:
        ordering = ["-seen_at"]
        constraints = [models.UniqueConstraint(fields=["host", "pid"], name="one_beat_per_process")]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"

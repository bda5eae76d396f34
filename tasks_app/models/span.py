"""Spans of traces that have not ended, or have not been sent yet."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Now

from tasks_app.core.trace_context import new_span_id
from tasks_app.models.run import Run
from tasks_app.models.step import Step
from tasks_app.models.task import Task

#: How long an ended span is kept while it cannot be sent, and how many of them.
KEPT = timedelta(days=1)
MOST_KEPT = 10_000
#: Seconds after which spans that a process took may be taken by another one: it has died.
CLAIM_SECONDS = 60.0
NO_DELAY = timedelta(0)


class SpanKind(models.TextChoices):
    TASK = "task", "a task, from its start to its end"
    STEP = "step", "a step, from its first run to its end"
    RUN = "run", "a run"
    WAIT = "wait", "waiting for answers"


class SpanQuerySet(models.QuerySet["Span"]):
    def open(self) -> Self:
        return self.filter(ended_at=None)

    def end_with_runs(self, *, settled: timedelta = NO_DELAY) -> None:
        """Mark the spans of runs as ended that ended so long ago.

        The row of the run says when and how, whoever wrote it.
        """
        runs = self.open().filter(_ended("run__ended_at", settled), kind=SpanKind.RUN)
        ended = list(runs.values_list("pk", flat=True))
        if ended:
            run = Run.objects.filter(pk=OuterRef("run"))
            values = {
                "ended_at": Subquery(run.values("ended_at")),
                "outcome": Subquery(run.values("outcome")),
            }
            self.open().filter(pk__in=ended).update(**values)

    def take(self, limit: int, *, settled: timedelta = NO_DELAY) -> list[Span]:
        """Take spans for sending that ended so long ago.

        Nobody else gets them until `give_back`, or for CLAIM_SECONDS.
        """
        soon = Now() + timedelta(seconds=CLAIM_SECONDS)
        free = Q(taken_until=None) | Q(taken_until__lt=Now()) | Q(taken_until__gt=soon)
        due = self.filter(free, _ended("ended_at", settled))
        ids = list(due.order_by("pk").values_list("pk", flat=True)[:limit])
        if not ids:
            return []
        taker = secrets.token_hex(8)
        due.filter(pk__in=ids).update(taken_by=taker, taken_until=soon)
        taken = self.filter(pk__in=ids, taken_by=taker).order_by("pk")
        return list(taken.select_related("task__project", "step", "run").prefetch_related("noted_hops"))

    def give_back(self, spans: Collection[Span]) -> None:
        self.filter(pk__in=[span.pk for span in spans]).update(taken_by="", taken_until=None)

    def prune(self) -> int:
        """Delete ended spans that could not be sent for too long, and the oldest of too many."""
        ended = self.filter(ended_at__isnull=False)
        too_many = ended.order_by("-pk").values_list("pk", flat=True)[MOST_KEPT : MOST_KEPT + 1]
        last = next(iter(too_many), 0)
        deleted, _ = ended.filter(Q(pk__lte=last) | Q(ended_at__lt=Now() - KEPT)).delete()
        return deleted


def _ended(field: str, settled: timedelta) -> Q:
    """Match rows whose `field` has a time that has been over for so long; any time for NO_DELAY.

    A time that far in the future is that of a host whose clock is ahead, and is not waited for.
    """
    if not settled:
        return Q(**{f"{field}__isnull": False})
    return Q(**{f"{field}__lte": Now() - settled}) | Q(**{f"{field}__gt": Now() + settled})


class Span(models.Model):
    """A span of a task's trace (O3): made when it begins, deleted when it was sent.

    The rows, not a process, know which spans are open and which ones are to be sent, so that a trace goes on
    in another process and on another host. `run` of a wait is the run that asked. `outcome` is the phase in
    which a task or step ended, or the outcome of a run or wait.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="spans")
    step = models.ForeignKey(Step, null=True, blank=True, on_delete=models.CASCADE, related_name="spans")
    run = models.ForeignKey(Run, null=True, blank=True, on_delete=models.CASCADE, related_name="spans")
    kind = models.CharField(max_length=10, choices=SpanKind)
    span_id = models.CharField(max_length=16, default=new_span_id, unique=True)
    parent_id = models.CharField(max_length=16, blank=True, help_text="Empty for the first span of a trace.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, db_index=True)
    outcome = models.CharField(max_length=20, blank=True)
    taken_by = models.CharField(max_length=16, blank=True)
    taken_until = models.DateTimeField(null=True, blank=True)

    objects = SpanQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.span_id}"


class NotedHop(models.Model):
    """A moment of a run or of a wait for answers that only one process saw, until its span is sent (O3).

    Each is kept once, as the process that stored it first saw it: however often a card is fetched, a wait of
    weeks has a few rows.
    """

    span = models.ForeignKey(Span, on_delete=models.CASCADE, db_index=False, related_name="noted_hops")
    name = models.CharField(max_length=30, help_text="A value of HopName.")
    question = models.PositiveBigIntegerField(
        default=0, help_text="The id of the question, if each one has its own; otherwise 0."
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["at", "pk"]
        constraints = [models.UniqueConstraint(fields=["span", "name", "question"], name="one_hop_of_a_name")]

    def __str__(self) -> str:
        return f"{self.name} of span {self.span_id}"

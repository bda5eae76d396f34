"""The thread that sends spans to the endpoint for traces (O3).

They are the spans of tasks, which rows tell (`spans.py`), and those of agents' programs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models import Max, Q
from django.utils import timezone

from tasks_app.core.trace_context import TraceSpan
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.traces.agent_spans import WAITING
from tasks_app.engine.traces.spans import ended_spans
from tasks_app.models import Change, Publication, Run, SentSpan, Task

if TYPE_CHECKING:
    from tasks_app.engine.traces.otlp import SpanSender

logger = logging.getLogger(__name__)

#: Seconds between two rounds, and between two attempts while the endpoint takes no spans.
SECONDS = 5.0
LONGEST_PAUSE = 60.0
#: How long after its end a span is sent: a run that asks has ended before its process is gone.
SETTLED = timedelta(seconds=5)
NO_DELAY = timedelta(0)
#: How long after its end a span can be sent, for example while the endpoint is down.
KEPT = timedelta(days=1)
#: Tasks that are read at once, and spans in one request.
TASKS_AT_ONCE = 50
BATCH = 200
#: How long the end of a worker may be held up by the last round.
FLUSH_SECONDS = 5.0


class EndedSpans:
    """Finds what has ended and sends it, each span once.

    At first all tasks are looked at of which something has ended within KEPT, then those that have changed.
    """

    def __init__(self) -> None:
        self._newest = self._before = Change.objects.aggregate(newest=Max("pk"))["newest"] or 0
        since = timezone.now() - KEPT
        runs = Run.objects.filter(Q(started_at__gte=since) | Q(ended_at__gte=since))
        self._tasks: set[int] = {
            *runs.values_list("step__task", flat=True),
            *Task.objects.filter(ended_at__gte=since).values_list("pk", flat=True),
            *Publication.objects.filter(ended_at__gte=since).values_list("task", flat=True),
        }

    def send(self, sender: SpanSender, *, settled: timedelta = NO_DELAY) -> str:
        """Send all spans that ended long enough ago.

        Returns "" or why the endpoint does not take them, in words.
        """
        # Each change is seen twice: an earlier one may be committed later.
        changes = Change.objects.order_by().filter(pk__gt=self._before).values_list("task")
        newest = dict(changes.annotate(newest=Max("pk")))
        self._tasks.update(newest)
        self._before, self._newest = self._newest, max([self._newest, *newest.values()])
        due = sorted(self._tasks)
        for first in range(0, len(due), TASKS_AT_ONCE):
            tasks = due[first : first + TASKS_AT_ONCE]
            spans = [span for span in ended_spans(tasks) if span.age <= KEPT]
            # An end far in the future is that of a host whose clock is ahead, and is not waited for.
            young = [span for span in spans if abs(span.age) < settled]
            if problem := _send_once(sender, [span for span in spans if span not in young]):
                return problem
            left = {span.attributes["cat_herder.task.id"] for span in young}
            self._tasks.difference_update(task for task in tasks if task not in left)
        return ""


def send_ended(sender: SpanSender) -> str:
    """Send everything that has ended within KEPT and was not sent. Returns the same as `EndedSpans.send`."""
    return EndedSpans().send(sender)


def _send_once(sender: SpanSender, spans: Sequence[TraceSpan]) -> str:
    """Send the spans that no process has sent. Return "" or why the endpoint does not take them, in words.

    They are taken before: a process that is killed while it sends loses the spans of one request.
    """
    for first in range(0, len(spans), BATCH):
        batch = spans[first : first + BATCH]
        taken = SentSpan.objects.take([span.context.span_id for span in batch])
        problem = ""
        try:
            if taken:
                problem = sender.send([span for span in batch if span.context.span_id in taken])
                crash_point("spans-sent")
        except BaseException:
            SentSpan.objects.filter(pk__in=taken).delete()
            raise
        if problem:
            SentSpan.objects.filter(pk__in=taken).delete()
            return problem
    return ""


class SpanExporter(threading.Thread):
    """Sends spans every SECONDS until it is stopped, then once more.

    Nothing waits for it: what has ended are rows. While the endpoint is unavailable, the pauses grow, and the
    log has one line when that begins and one when it is over.
    """

    def __init__(self, make_sender: Callable[[], SpanSender]) -> None:
        super().__init__(name="span-exporter", daemon=True)
        self._make_sender = make_sender
        self._spans: EndedSpans | None = None
        self._problem = ""
        self._pause = SECONDS
        self._stopping = threading.Event()

    def run(self) -> None:
        sender = self._make_sender()
        while not self._stopping.wait(self._pause):
            self._round(sender, settled=SETTLED)
        if not self._problem:
            self._round(sender)
        connection.close()

    def stop(self) -> None:
        """Send what has ended, for at most FLUSH_SECONDS; the next worker sends the rest."""
        self._stopping.set()
        self.join(FLUSH_SECONDS)

    def _round(self, sender: SpanSender, *, settled: timedelta = NO_DELAY) -> None:
        try:
            close_old_connections()
            self._spans = self._spans or EndedSpans()
            self._note(self._spans.send(sender, settled=settled) or WAITING.send(sender))
        except Exception as error:
            # A temporary fault gets one line without a traceback, as in the sweeper.
            trace = None if temporary_fault(error) else error
            logger.error("spans could not be read (%s)", error, exc_info=trace)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        finally:
            close_old_connections()

    def _note(self, problem: str) -> None:
        from tasks_app.engine.traces.otlp import shown_endpoint

        if problem and not self._problem:
            logger.warning(
                "spans cannot be sent to %s: %s. They are kept for a day and tried again.",
                shown_endpoint(),
                problem,
            )
        elif self._problem and not problem:
            logger.info("spans are sent to %s again", shown_endpoint())
        self._problem = problem
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if problem else SECONDS


def start_exporter() -> SpanExporter | None:
    """Return a started exporter; None without an endpoint for traces."""
    if not settings.ENVIRONMENT.traces_endpoint:
        return None
    exporter = SpanExporter(_sender)
    exporter.start()
    return exporter


def _sender() -> SpanSender:
    from tasks_app.engine.traces.otlp import SpanSender  # imported late: see there

    return SpanSender()

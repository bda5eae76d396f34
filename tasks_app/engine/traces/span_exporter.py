"""The thread that sends spans to the endpoint for traces (O3).

They are those of ended tasks, steps, runs and waits, and those of agents' programs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import close_old_connections, connection

from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.traces.agent_spans import WAITING
from tasks_app.history.noted_hops import QUEUE
from tasks_app.models import Span
from tasks_app.models.span import NO_DELAY

if TYPE_CHECKING:
    from tasks_app.engine.traces.otlp import SpanSender

logger = logging.getLogger(__name__)

#: Seconds between two rounds, and between two attempts while the endpoint takes no spans.
SECONDS = 3.0
LONGEST_PAUSE = 60.0
#: Spans in one request.
BATCH = 200
#: How long the end of a worker may be held up by the last round.
FLUSH_SECONDS = 5.0
#: How long after its end a span is sent. Each process has stored by then what it noted of it: a worker once
#: in SECONDS, a web process more often (`hop_writer.py`).
SETTLED = timedelta(seconds=5)


def send_ended(sender: SpanSender, *, settled: timedelta = NO_DELAY) -> str:
    """Send all spans that ended so long ago. Return "" or why the endpoint does not take them, in words.

    What this process has noted of them is stored before.

    Each span is sent once: processes take them from each other's sight first. The exception is a process that
    is killed after the endpoint has taken spans and before it could delete them; they are sent again, with
    the same ids.
    """
    QUEUE.store()
    Span.objects.end_with_runs(settled=settled)
    while spans := Span.objects.take(BATCH, settled=settled):
        try:
            problem = sender.send(spans)
        except BaseException:
            Span.objects.give_back(spans)
            raise
        if problem:
            Span.objects.give_back(spans)
            return problem
        crash_point("spans-sent")
        Span.objects.filter(pk__in=[span.pk for span in spans]).delete()
    return ""


class SpanExporter(threading.Thread):
    """Sends spans every SECONDS until it is stopped, then once more.

    Nothing waits for it: what ends is a row, and the rows are the queue. While the endpoint is unavailable,
    the pauses grow, and the log has one line when that begins and one when it is over.
    """

    def __init__(self, make_sender: Callable[[], SpanSender]) -> None:
        super().__init__(name="span-exporter", daemon=True)
        self._make_sender = make_sender
        self._problem = ""
        self._pause = SECONDS
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            sender = self._make_sender()
        except Exception as error:  # a variable that the SDK reads is wrong
            logger.error("spans cannot be sent: %s", error)
            return
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
            self._note(send_ended(sender, settled=settled) or WAITING.send(sender))
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

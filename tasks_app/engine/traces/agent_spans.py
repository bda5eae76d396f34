"""Spans of agents' programs that wait in this process until they are sent to the endpoint for traces (O3)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks_app.core.trace_context import TraceSpan

if TYPE_CHECKING:
    from tasks_app.engine.traces.otlp import SpanSender

logger = logging.getLogger(__name__)

#: How many spans may wait. They take about 1 kB each.
MOST_WAITING = 10_000
#: Spans in one request.
BATCH = 200


class WaitingSpans:
    """A bounded queue in memory. While the endpoint is unavailable, the oldest spans make room for new ones.

    Unlike the spans of tasks, which are read from rows, they are lost if the process ends before.
    """

    def __init__(self) -> None:
        self._spans: deque[TraceSpan] = deque()
        self._lock = threading.Lock()
        self._is_dropping = False

    def put(self, spans: Sequence[TraceSpan]) -> None:
        """Add spans. It never waits, and may be called from any thread."""
        with self._lock:
            self._spans.extend(spans)
            drops = len(self._spans) > MOST_WAITING
            while len(self._spans) > MOST_WAITING:
                self._spans.popleft()
            begins, self._is_dropping = drops and not self._is_dropping, drops or self._is_dropping
        if begins:
            logger.warning("spans of agents are dropped, because more than %s wait to be sent", MOST_WAITING)

    def send(self, sender: SpanSender) -> str:
        """Send everything that waits. Return "" or why the endpoint does not take it, in words."""
        while spans := self._take():
            if problem := sender.send_agent_spans(spans):
                self.put(spans)  # at the end: a batch that is refused does not hold up the others
                return problem
        with self._lock:
            self._is_dropping = False
        return ""

    def _take(self) -> list[TraceSpan]:
        with self._lock:
            return [self._spans.popleft() for _ in range(min(BATCH, len(self._spans)))]


#: Spans that wait in this process.
WAITING = WaitingSpans()

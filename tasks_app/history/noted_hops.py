"""Note the moments of runs and of waits for answers that no row has, for traces (O3).

To note one costs its process an entry in memory: no agent, page or claim waits for it. A thread stores what
was noted (`engine/traces/`). What a process notes last is lost if it is killed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError
from django.utils import timezone

from tasks_app.core.hops import HopName
from tasks_app.core.trace_context import TraceContext
from tasks_app.models import NotedHop, Span, SpanKind

logger = logging.getLogger(__name__)

#: How many moments may wait to be stored. They take about 300 bytes each.
MOST_WAITING = 10_000
#: Moments that are stored at once.
BATCH = 500


@dataclass(frozen=True)
class _Noted:
    """A moment and whose it is: the span of a run by its id, or that of a task's wait by the time."""

    name: HopName
    at: datetime
    span_id: str = ""
    task_id: int = 0
    question_id: int = 0


class HopQueue:
    """What this process has noted and not stored yet. What does not fit is dropped."""

    def __init__(self) -> None:
        self._waiting: deque[_Noted] = deque()
        self._is_dropping = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, noted: _Noted) -> None:
        """Add a moment. It never waits, and may be called from any thread."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(noted)
        elif not self._is_dropping:
            self._is_dropping = True
            logger.warning(
                "events of spans are dropped, because more than %s wait to be stored", MOST_WAITING
            )

    def store(self) -> None:
        """Store everything that waits. What cannot be stored now waits on. Raises DatabaseError."""
        while batch := list(self._take()):
            try:
                _store(batch)
            except BaseException:
                self._waiting.extendleft(reversed(batch))
                raise
        self._is_dropping = False

    def _take(self) -> Iterator[_Noted]:
        with suppress(IndexError):
            for _ in range(BATCH):
                yield self._waiting.popleft()


#: What was noted in this process.
QUEUE = HopQueue()


def notes_hops() -> bool:
    """Return whether this process notes moments: only with an endpoint for traces."""
    return bool(settings.ENVIRONMENT.traces_endpoint)


def note_of_run(context: TraceContext | None, name: HopName, at: datetime | None = None) -> None:
    """Note a moment of the run whose span the context names."""
    if context is not None and notes_hops():
        QUEUE.put(_Noted(name, at or timezone.now(), span_id=context.span_id))


def note_of_wait(task_id: int, name: HopName, at: datetime | None = None, *, question_id: int = 0) -> None:
    """Note a moment of what the task waits for at that time: answers; its next run if it is `LAID_OUT`."""
    if notes_hops():
        QUEUE.put(_Noted(name, at or timezone.now(), task_id=task_id, question_id=question_id))


def _store(batch: list[_Noted]) -> None:
    try:
        _insert(batch)
    except IntegrityError:  # a span was sent or its task deleted meanwhile: the others are stored
        _insert(batch)


def _insert(batch: list[_Noted]) -> None:
    spans = _Spans(batch)
    rows: dict[tuple[int, str, int], NotedHop] = {}
    for noted in sorted(batch, key=lambda one: one.at):
        if span := spans.of(noted):
            row = NotedHop(span_id=span, name=noted.name, question=noted.question_id, at=noted.at)
            rows.setdefault((span, noted.name, noted.question_id), row)
    NotedHop.objects.bulk_create(rows.values(), ignore_conflicts=True)


class _Spans:
    """The spans to which the moments of a batch may belong, read at once."""

    def __init__(self, batch: Iterable[_Noted]) -> None:
        named = Span.objects.filter(span_id__in={one.span_id for one in batch if one.span_id})
        self._by_id = dict(named.values_list("span_id", "pk"))
        kinds = (SpanKind.WAIT, SpanKind.STEP)
        of_tasks = Span.objects.filter(task__in={one.task_id for one in batch if one.task_id}, kind__in=kinds)
        self._of_tasks = list(of_tasks.order_by("-kind", "-pk"))  # waits come first

    def of(self, noted: _Noted) -> int | None:
        """Return the key of the span; None if there is none, or if it was sent."""
        if noted.span_id:
            return self._by_id.get(noted.span_id)
        kinds = (SpanKind.WAIT, SpanKind.STEP) if noted.name is HopName.LAID_OUT else (SpanKind.WAIT,)
        found = (span for span in self._of_tasks if span.task_id == noted.task_id and span.kind in kinds)
        return next((span.pk for span in found if _covers(span, noted.at)), None)


def _covers(span: Span, at: datetime) -> bool:
    return span.started_at <= at and (span.ended_at is None or at <= span.ended_at)


@dataclass
class RequestHops:
    """What is known of the request that a thread works on: when it arrived, which open cards it shows."""

    arrived_at: datetime = field(default_factory=timezone.now)
    cards: list[tuple[int, int]] = field(default_factory=list)

    def note_cards(self) -> None:
        """Note that the response has the cards."""
        at = timezone.now()
        for task_id, question_id in self.cards:
            note_of_wait(task_id, HopName.CARD_FETCHED, at, question_id=question_id)


_request: ContextVar[RequestHops | None] = ContextVar("request_hops", default=None)


@contextmanager
def hops_of_request() -> Iterator[RequestHops]:
    """Let what is noted in this context be of one request, which has arrived now."""
    hops = RequestHops()
    token = _request.set(hops)
    try:
        yield hops
    finally:
        _request.reset(token)


def note_card(task_id: int, question_id: int) -> None:
    """Note that the response to this thread's request will have the card of an open question."""
    if hops := _request.get():
        hops.cards.append((task_id, question_id))


def note_answer(task_id: int, question_id: int) -> None:
    """Note when the request arrived that answers the question. A terminal has none."""
    if hops := _request.get():
        note_of_wait(task_id, HopName.POSTED, hops.arrived_at, question_id=question_id)

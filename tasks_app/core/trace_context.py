"""Traces (W3C Trace Context): the ids of spans, spans for sending, and the span that log lines belong to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

AttributeValue = str | bool | int | float | Sequence[str]


@dataclass(frozen=True)
class TraceContext:
    """A span within a trace; both ids are written in hexadecimal digits."""

    trace_id: str
    span_id: str

    @classmethod
    def derive(cls, trace: str, span: str) -> TraceContext:
        """Return the ids of a span by its name within a trace: the same in every process."""
        trace_id, span_id = (sha256(name.encode()).hexdigest() for name in (trace, f"{trace} {span}"))
        return cls(trace_id[:32], span_id[:16])

    @classmethod
    def parse(cls, traceparent: str) -> TraceContext | None:
        """Return what a `traceparent` names, or None for an empty one."""
        if not traceparent:
            return None
        _, trace_id, span_id, _ = traceparent.split("-")
        return cls(trace_id, span_id)

    @property
    def traceparent(self) -> str:
        """The value of a `traceparent` header; its flag says that the trace is recorded."""
        return f"00-{self.trace_id}-{self.span_id}-01"


@dataclass(frozen=True)
class TraceSpan:
    """A span that has ended. `start`, `end` and the times of `events` are in nanoseconds since 1970."""

    context: TraceContext
    parent_id: str
    name: str
    start: int
    end: int
    failed: bool
    attributes: Mapping[str, AttributeValue]
    events: Sequence[tuple[str, int]] = ()

    @property
    def age(self) -> timedelta:
        """Seconds since the end by the clock of this host; negative if another host's clock is ahead."""
        return timedelta(microseconds=(time.time_ns() - self.end) / 1000)


_logged: ContextVar[TraceContext | None] = ContextVar("logged_trace_context", default=None)


def logged_context() -> TraceContext | None:
    """Return the context that log lines of this thread belong to."""
    return _logged.get()


def log_for(context: TraceContext) -> None:
    """Let the following log lines belong to this context, within a block of `log_context`."""
    _logged.set(context)


@contextmanager
def log_context(context: TraceContext | None = None) -> Iterator[None]:
    """Let the log lines of the block belong to this context."""
    token = _logged.set(context)
    try:
        yield
    finally:
        _logged.reset(token)

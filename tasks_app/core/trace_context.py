"""The trace context of what a thread works on: a trace's id and a span's id (W3C Trace Context)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class TraceContext:
    """A span within a trace; both ids are written in hexadecimal digits."""

    trace_id: str
    span_id: str

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


def new_trace_id() -> str:
    return secrets.token_hex(16)


def new_span_id() -> str:
    return secrets.token_hex(8)


_logged: ContextVar[TraceContext | None] = ContextVar("logged_trace_context", default=None)


def logged_context() -> TraceContext | None:
    """Return the context that log lines of this thread belong to."""
    return _logged.get()


def log_for(context: TraceContext | None) -> None:
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

"""Log filters and formatters: hide secrets, and suppress repeated lines."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import time
from datetime import UTC, datetime
from typing import Any

from redis.exceptions import RedisError

from tasks_app.core.trace_context import logged_context


class SeldomWithoutServices(logging.Filter):
    """Log in one line every `seconds` that Redis, the queue or the database is unavailable.

    Otherwise each thread of a worker and each page would log a traceback several times a second.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._not_before: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        if fault is None or (reason := _unavailable_service(fault)) is None:
            return True
        record.msg, record.args = f"{record.getMessage().rstrip('.')}: {reason}", ()
        record.exc_info = record.exc_text = None
        key, now = (record.name, type(fault).__name__), time.monotonic()
        if now < self._not_before.get(key, 0.0):
            return False
        self._not_before[key] = now + self._seconds
        return True


def _unavailable_service(fault: BaseException) -> str | None:
    """Return the message about an unavailable service, or None for any other error."""
    from tasks_app.models.database_errors import (  # needs settings, which name this module
        explain,
        is_unavailable,
    )

    if isinstance(fault, RedisError | sqlite3.Error):  # of the queue; Django has errors of its own
        return str(fault)
    if is_unavailable(fault):
        return explain(fault)
    return None


class Seldom(logging.Filter):
    """Pass one of equal records every `seconds`, with the number of suppressed ones.

    For what a stranger can cause at will: connections beyond the limit of files, malformed requests, forms
    without a token. Records are equal if their template, kind of error and last line of code are.
    """

    #: Kinds of records that are remembered.
    MOST = 500

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._seen: dict[tuple[Any, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key, now = _kind_of(record), time.monotonic()
        last, left_out = self._seen.get(key, (float("-inf"), 0))
        if now - last < self._seconds:
            self._seen[key] = (last, left_out + 1)
            return False
        if len(self._seen) >= self.MOST:
            self._seen.clear()
        self._seen[key] = (now, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out:,} more like this before)", ()
        return True


def _kind_of(record: logging.LogRecord) -> tuple[Any, ...]:
    fault, place = None, None
    if record.exc_info and record.exc_info[1] is not None:
        fault, trace = type(record.exc_info[1]).__name__, record.exc_info[2]
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else None
    return record.name, record.levelno, str(record.msg)[:100], fault, place


#: Paths with a secret that grants access. The secret ends at the next slash.
_SECRET_PATHS = re.compile(r"(?<=/)(invitations/|password/reset/|email/confirm/)[^/\s\"'?]{8,}")


def without_secrets(text: str) -> str:
    return _SECRET_PATHS.sub(r"\1[secret]", text)


class WithoutSecrets(logging.Filter):
    """Replace secrets in paths: links of invitations, password resets and e-mail confirmations.

    Message and arguments are replaced one by one: uvicorn's formatter wants its arguments.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = without_secrets(str(record.msg))
        if isinstance(record.args, tuple):
            record.args = tuple(without_secrets(one) if isinstance(one, str) else one for one in record.args)
        return True


class Formatter(logging.Formatter):
    """Formatter that also replaces secrets in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class JsonFormatter(Formatter):
    """One JSON object a line (O3): `time` in UTC, `level`, `logger`, `message`, `process`, `traceback`.

    A line about the work on a task has its `trace_id`, and the `span_id` of the run or of the task.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            "process": record.process,
        }
        if context := logged_context():
            fields |= {"trace_id": context.trace_id, "span_id": context.span_id}
        if record.exc_info:
            fields["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)

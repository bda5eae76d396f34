"""What the log of a portal leaves out."""

from __future__ import annotations

import logging
import time

from redis.exceptions import RedisError


class SeldomWithoutRedis(logging.Filter):
    """Tells that Redis is away in one line every `seconds`; else each thread of a worker writes a traceback
    ten times a second for as long as it lasts."""

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._not_before: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        if not isinstance(fault, RedisError):
            return True
        record.msg, record.args = f"{record.getMessage().rstrip('.')}: {fault}", ()
        record.exc_info = record.exc_text = None
        key, now = (record.name, type(fault).__name__), time.monotonic()
        if now < self._not_before.get(key, 0.0):
            return False
        self._not_before[key] = now + self._seconds
        return True

"""Limit the requests per minute of each token and user.

They are counted in Redis if there is one, so for all processes together. Otherwise they are counted in this
process, which is exact for the single web process of an installation without Redis. docs/security.md says why
Ninja's throttling is not used.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from tasks_app.api.problems import Kind, Refused

WINDOW = 60


@dataclass(frozen=True)
class Budget:
    """How many requests a caller has used of the limit; the count starts again after `resets_in` seconds."""

    limit: int
    used: int
    resets_in: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(max(0, self.limit - self.used)),
            "RateLimit-Reset": str(self.resets_in),
        }


class Counter(Protocol):
    def count(self, name: str, window: int) -> int:
        """Count a request under the name and return how many there were in this window of time."""


class ProcessCounter:
    """Counts in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._window = 0
        self._counts: dict[str, int] = {}

    def count(self, name: str, window: int) -> int:
        with self._lock:
            if window != self._window:
                self._window, self._counts = window, {}
            self._counts[name] = self._counts.get(name, 0) + 1
            return self._counts[name]


class RedisCounter:
    """Counts in Redis. Without an answer nobody is limited: the portal works without Redis."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)

    def count(self, name: str, window: int) -> int:
        key = f"cat-herder:rate:{name}:{window}"
        try:
            with self._redis.pipeline() as transaction:
                transaction.incr(key)
                transaction.expire(key, 2 * WINDOW)
                count, _ = transaction.execute()
        except redis.RedisError:
            return 0
        return int(count)


@cache
def counter() -> Counter:
    url = settings.ENVIRONMENT.redis_url
    return RedisCounter(url) if url else ProcessCounter()


def count_request(request: HttpRequest, name: str) -> None:
    """Count a request of the caller. Raise Refused if there were too many in this minute."""
    limit = settings.ENVIRONMENT.api_rate
    if not limit:
        return
    window, elapsed = divmod(int(time.time()), WINDOW)
    budget = Budget(limit, counter().count(name, window), WINDOW - elapsed)
    request.api_budget = budget  # type: ignore[attr-defined]
    if budget.used > limit:
        raise Refused(
            Kind.TOO_MANY_REQUESTS,
            f"This installation allows {limit:,} requests per minute for each token.",
            headers={"Retry-After": str(budget.resets_in)},
        )


def set_budget_headers(request: HttpRequest, response: HttpResponseBase) -> None:
    """Say in the response's headers how many requests are left."""
    if budget := getattr(request, "api_budget", None):
        for name, value in budget.headers.items():
            response[name] = value

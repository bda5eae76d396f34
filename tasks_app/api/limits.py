"""So many requests a minute from each token or person, and not more.

Counted in Redis if there is one, so for all processes together; else in this process, which is exact for
the one web process of an installation without Redis.
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
    """What a caller may still send; `resets_in` seconds it is whole again."""

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
        """Count one more for that name in that window of time; how many these are."""


class InThisProcess:
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


class InRedis:
    """A Redis that does not answer limits nobody: the portal goes on without it."""

    def __init__(self, address: str) -> None:
        self._redis = redis.Redis.from_url(address, socket_timeout=1, socket_connect_timeout=1)

    def count(self, name: str, window: int) -> int:
        key = f"cat-herder:rate:{name}:{window}"
        try:
            with self._redis.pipeline() as both:
                both.incr(key)
                both.expire(key, 2 * WINDOW)
                count, _ = both.execute()
        except redis.RedisError:
            return 0
        return int(count)


@cache
def counter() -> Counter:
    address = settings.ENVIRONMENT.redis_url
    return InRedis(address) if address else InThisProcess()


def count_request(request: HttpRequest, name: str) -> None:
    """Raises Refused for a caller who sent too many in this minute."""
    limit = settings.ENVIRONMENT.api_rate
    if not limit:
        return
    window, into = divmod(int(time.time()), WINDOW)
    budget = Budget(limit, counter().count(name, window), WINDOW - into)
    request.api_budget = budget  # type: ignore[attr-defined]
    if budget.used > limit:
        raise Refused(
            Kind.TOO_MANY_REQUESTS,
            f"This installation takes {limit:,} requests a minute from each token.",
            headers={"Retry-After": str(budget.resets_in)},
        )


def tell_budget(request: HttpRequest, response: HttpResponseBase) -> None:
    """Put what is left into the headers of the answer."""
    if budget := getattr(request, "api_budget", None):
        for name, value in budget.headers.items():
            response[name] = value

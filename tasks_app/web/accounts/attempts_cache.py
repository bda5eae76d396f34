"""The cache that counts login attempts: in Redis for all processes, in memory while Redis is unavailable.

A Redis that does not respond, or contains what others wrote, must neither lock everybody out nor allow
guessing passwords.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.core import signing
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

logger = logging.getLogger(__name__)

#: Seconds until a Redis that does not respond counts as unavailable: a user waits for the login page.
TIMEOUT_SECONDS = 1.0
#: With Django's default of 300, a stranger could evict the count of one name by trying enough others.
IN_MEMORY: dict[str, Any] = {"MAX_ENTRIES": 200_000}


class SignedJsonSerializer:
    """Replaces Django's pickle: others who can write to Redis must not run code in the portal."""

    def dumps(self, value: Any) -> str:
        return signing.dumps(value, salt="counts")

    def loads(self, data: bytes) -> Any:
        """Raises BadSignature if the portal did not write it."""
        return signing.loads(data.decode(errors="replace"), salt="counts")


def _or_in_memory(name: str) -> Callable[..., Any]:
    def operation(self: RedisOrMemoryCache, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(RedisCache, name)(self, *args, **kwargs)
        except (RedisError, OSError, signing.BadSignature) as error:
            logger.warning("Redis is unavailable, so login attempts are counted in memory: %s", error)
            return getattr(self.in_memory, name)(*args, **kwargs)

    return operation


class RedisOrMemoryCache(RedisCache):
    """Django's Redis cache, with a fallback in the memory of this process."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        bounds = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
        options = {"serializer": SignedJsonSerializer, "retry": Retry(NoBackoff(), 0), **bounds}
        super().__init__(server, {**params, "OPTIONS": options})
        self.in_memory = LocMemCache("while Redis is unavailable", {"OPTIONS": IN_MEMORY})

    add = _or_in_memory("add")
    get = _or_in_memory("get")
    set = _or_in_memory("set")
    touch = _or_in_memory("touch")
    delete = _or_in_memory("delete")
    get_many = _or_in_memory("get_many")
    has_key = _or_in_memory("has_key")
    incr = BaseCache.incr  # Redis itself cannot increment a signed value
    set_many = _or_in_memory("set_many")
    delete_many = _or_in_memory("delete_many")
    clear = _or_in_memory("clear")

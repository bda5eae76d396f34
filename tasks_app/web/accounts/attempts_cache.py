"""Where attempts to log in are counted: in Redis for all processes together, or here while Redis is away.

A Redis that does not answer, or has what others wrote, must neither lock everybody out nor leave passwords
open to guessing.
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

#: Seconds until a Redis that does not answer counts as away. Somebody waits for a login page meanwhile.
PATIENCE = 1.0
#: With Django's 300 a stranger who tries enough other names makes the counts of one forgotten.
IN_MEMORY: dict[str, Any] = {"MAX_ENTRIES": 200_000}


class Signed:
    """In place of Django's pickle: whoever else can write into Redis must not run code in the portal."""

    def dumps(self, value: Any) -> str:
        return signing.dumps(value, salt="counts")

    def loads(self, data: bytes) -> Any:
        """Raises BadSignature for what the portal did not write."""
        return signing.loads(data.decode(errors="replace"), salt="counts")


def _or_here(name: str) -> Callable[..., Any]:
    def operation(self: RedisOrHere, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(RedisCache, name)(self, *args, **kwargs)
        except (RedisError, OSError, signing.BadSignature) as error:
            logger.warning("Redis cannot be used, so attempts to log in are counted here: %s", error)
            return getattr(self.here, name)(*args, **kwargs)

    return operation


class RedisOrHere(RedisCache):
    """Django's cache in Redis, which goes on in the memory of this process."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        bounds = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
        options = {"serializer": Signed, "retry": Retry(NoBackoff(), 0), **bounds}
        super().__init__(server, {**params, "OPTIONS": options})
        self.here = LocMemCache("while Redis is away", {"OPTIONS": IN_MEMORY})

    add = _or_here("add")
    get = _or_here("get")
    set = _or_here("set")
    touch = _or_here("touch")
    delete = _or_here("delete")
    get_many = _or_here("get_many")
    has_key = _or_here("has_key")
    incr = BaseCache.incr  # Redis itself cannot count up what is signed
    set_many = _or_here("set_many")
    delete_many = _or_here("delete_many")
    clear = _or_here("clear")

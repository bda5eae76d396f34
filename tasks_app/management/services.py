"""The database and the queue, tried once before anything of the portal starts."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from redis import Redis
from redis.exceptions import RedisError

#: Seconds that Redis gets; without a bound a host that swallows packets would hold the start for minutes.
PATIENCE = 5.0


def require_services() -> None:
    """Raises CommandError that names the variable of a service which cannot be used."""
    environment = settings.ENVIRONMENT
    if environment.database_url:
        _require("DATABASE_URL: the database", connection.ensure_connection)
    if url := environment.redis_url:
        _require("REDIS_URL: Redis", lambda: _try_redis(url))


def _require(what: str, try_it: Callable[[], object]) -> None:
    try:
        try_it()
    except (DatabaseError, RedisError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(f"{what} cannot be used: {reason}", returncode=2) from None


def _try_redis(url: str) -> None:
    with Redis.from_url(url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE) as redis:
        redis.ping()

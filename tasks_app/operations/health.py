"""Whether the portal can work now, in reasons that anybody may read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from django.conf import settings
from django.db import Error as DatabaseFault
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from redis import Redis
from redis.exceptions import RedisError

#: Seconds that Redis gets to accept and to answer.
REDIS_SECONDS = 1.0


def not_ready() -> tuple[str, ...]:
    """Why the portal cannot work; empty if it can. One query, and one word to Redis if it is configured."""
    try:
        return tuple(_reasons())
    finally:
        connection.close()  # each call has a thread of its own, and so a connection


def _reasons() -> Iterator[str]:
    try:
        if needed_migrations() - applied_migrations():
            yield "The database is not prepared for this version."
    except DatabaseFault:
        yield "The database cannot be used."
    if settings.ENVIRONMENT.redis_url and not _redis_answers(settings.ENVIRONMENT.redis_url):
        yield "Redis cannot be used."


@cache
def needed_migrations() -> frozenset[tuple[str, str]]:
    """All migrations that this version knows, as (app, name)."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def applied_migrations() -> frozenset[tuple[str, str]]:
    """Those that the database has. Raises DatabaseError, also for a database without any table."""
    return frozenset(MigrationRecorder.Migration.objects.values_list("app", "name"))


def _redis_answers(url: str) -> bool:
    try:
        with Redis.from_url(url, socket_connect_timeout=REDIS_SECONDS, socket_timeout=REDIS_SECONDS) as redis:
            return bool(redis.ping())
    except (RedisError, ValueError):
        return False

"""Readiness of the portal."""

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
#: Migrations of earlier versions whose place another one has taken, 0001_squashed_0079_event_blocks.
FORMER_MIGRATIONS = frozenset(
    {("tasks_app", "0001_squashed_0034_push"), ("tasks_app", "0001_squashed_0043_looks_in_order")}
)


def not_ready() -> tuple[str, ...]:
    """Return public reasons why the portal cannot work, or (). One query, and one ping of Redis."""
    try:
        return tuple(_reasons())
    finally:
        connection.close()  # each call has its own thread and connection


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
    """Return all migrations of this version as (app, name)."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def applied_migrations() -> frozenset[tuple[str, str]]:
    """Return the applied migrations, but for former ones.

    Raises DatabaseError, also for a database without tables.
    """
    applied = frozenset(MigrationRecorder.Migration.objects.values_list("app", "name"))
    return applied - FORMER_MIGRATIONS


def _redis_answers(url: str) -> bool:
    try:
        with Redis.from_url(url, socket_connect_timeout=REDIS_SECONDS, socket_timeout=REDIS_SECONDS) as redis:
            return bool(redis.ping())
    except (RedisError, ValueError):
        return False

"""Readiness of the portal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error as DatabaseFault
from django.db import connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from redis import Redis
from redis.exceptions import RedisError

#: Seconds that Redis gets to accept and to answer.
REDIS_SECONDS = 1.0
#: In each database of a snapshot from before 0.1.0, whose migrations are gone.
SNAPSHOT = ("tasks_app", "0002_a_team_s_portal")
IS_SNAPSHOT = "The database is of a snapshot from before version 0.1.0."
LEAVE_SNAPSHOT = "Write a `backup` with that version, then `restore --replace` it with this one."


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
    """Return the applied migrations. Raises DatabaseError, also for a database without tables."""
    return frozenset(MigrationRecorder.Migration.objects.values_list("app", "name"))


def refuse_snapshot(using: str, **kwargs: Any) -> None:
    """Receiver of Django's signal `pre_migrate`: a first migration of that name was applied there, too."""
    if SNAPSHOT in MigrationRecorder(connections[using]).applied_migrations():
        raise CommandError(f"{IS_SNAPSHOT} {LEAVE_SNAPSHOT}", returncode=2)


def _redis_answers(url: str) -> bool:
    try:
        with Redis.from_url(url, socket_connect_timeout=REDIS_SECONDS, socket_timeout=REDIS_SECONDS) as redis:
            return bool(redis.ping())
    except (RedisError, ValueError):
        return False

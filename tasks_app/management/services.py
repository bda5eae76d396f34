"""The database and the queue, tried once before anything of the portal starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from redis import Redis
from redis.exceptions import RedisError

from tasks_app.models.database_errors import explain, is_unavailable

#: Seconds that Redis gets; without a bound a host that swallows packets would hold the start for minutes.
PATIENCE = 5.0


def require_git() -> None:
    """Raises CommandError if this machine has no git, with which everything is recorded."""
    if shutil.which("git") is None:
        raise CommandError(
            "git is not installed, and Cat Herder needs it. On Debian and Ubuntu: apt install git",
            returncode=2,
        )


def require_services() -> None:
    """Raises CommandError that names the variable of a service which cannot be used."""
    with sentence_for_database():
        connection.ensure_connection()
    if url := settings.ENVIRONMENT.redis_url:
        _require_redis(url)


@contextmanager
def sentence_for_database() -> Iterator[None]:
    """Turn a failure of the database into a CommandError of one sentence; other errors stay as they are."""
    try:
        yield
    except (DatabaseError, ValueError) as error:
        if isinstance(error, DatabaseError) and not is_unavailable(error):
            raise
        variable = "DATABASE_URL: " if settings.ENVIRONMENT.database_url else ""
        raise CommandError(f"{variable}{explain(error)}", returncode=2) from None


def _require_redis(url: str) -> None:
    try:
        _try_redis(url)
    except (RedisError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(f"REDIS_URL: Redis cannot be used: {reason}", returncode=2) from None


def _try_redis(url: str) -> None:
    with Redis.from_url(url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE) as redis:
        redis.ping()

"""Preconditions of starting the portal: git, the database, Redis, and an unused data directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from redis import Redis
from redis.exceptions import RedisError

from tasks_app.models.database_errors import explain, is_unavailable
from tasks_app.operations.open_services import hold_data_dir

#: Without this timeout, a host that drops packets would delay the start for minutes.
REDIS_SECONDS = 5.0


def require_git() -> None:
    """Raise CommandError if git is not installed."""
    if shutil.which("git") is None:
        raise CommandError(
            "git is not installed, and Cat Herder needs it. On Debian and Ubuntu: apt install git",
            returncode=2,
        )


def require_services() -> None:
    """Raise CommandError, which names the variable, if the database or Redis cannot be used."""
    with database_errors_as_sentences():
        connection.ensure_connection()
    url = settings.ENVIRONMENT.redis_url
    if not url:
        return
    try:
        with Redis.from_url(url, socket_connect_timeout=REDIS_SECONDS, socket_timeout=REDIS_SECONDS) as redis:
            redis.ping()
    except (RedisError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(f"REDIS_URL: Redis cannot be used: {reason}", returncode=2) from None


@contextmanager
def database_errors_as_sentences() -> Iterator[None]:
    """Turn an unavailable database into a CommandError of one sentence; leave other errors alone."""
    try:
        yield
    except (DatabaseError, ValueError) as error:
        if isinstance(error, DatabaseError) and not is_unavailable(error):
            raise
        variable = "DATABASE_URL: " if settings.ENVIRONMENT.database_url else ""
        raise CommandError(f"{variable}{explain(error)}", returncode=2) from None


@contextmanager
def exclusive_data_dir() -> Iterator[IO[str]]:
    """Hold the data directory while the yielded file is open: two portals on it would start everything twice.

    Raises CommandError.
    """
    data_dir = Path(settings.DATA_DIR)
    lock = hold_data_dir(data_dir)
    if lock is None:
        raise CommandError(f"Cat Herder is already running on {data_dir}.", returncode=2)
    with lock:
        yield lock

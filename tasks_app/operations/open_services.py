"""Detect a portal that runs on this data directory or database, by its lock and its connections."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from django.db import DatabaseError
from redis import Redis
from redis.exceptions import AuthenticationError, RedisError

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.models import WorkerBeat


def hold_data_dir(data_dir: Path) -> IO[str] | None:
    """Return the lock of the one portal that may run on a data directory, or None if another has it."""
    lock = (data_dir / "up.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def live_workers() -> list[str]:
    """Return running workers as HOST:PID; none for a database without tables."""
    try:
        return [str(worker) for worker in WorkerBeat.objects.alive()]
    except DatabaseError:
        return []


# Check whether the portal's database and Redis accept connections without a password.
#
# A sandboxed process that shares the machine's network can reach them on loopback. Without a password it
# could escape the sandbox: read and change all data of the portal.


#: Timeout of each attempt.
TIMEOUT_SECONDS = 2
LOOPBACK = "127.0.0.1"
#: A path that never exists. libpq warns of a password file that is there and no plain file.
_NO_FILE = f"{os.devnull}/none"
#: The default superuser of PostgreSQL.
SUPERUSER = "postgres"


def check_open_services() -> list[str]:
    """Return a sentence for each service that is open without a password.

    Tries to log in to the configured database and Redis like a process on this machine. A service that does
    not respond is not open.
    """
    return [*_open_database(settings.DATABASES["default"]), *_open_redis(settings.ENVIRONMENT.redis_url)]


def require_closed_services() -> list[str]:
    """Return the same sentences. Raises SandboxUnavailable if there are any and a sandbox is required."""
    found = check_open_services()
    shared = settings.ENVIRONMENT.network == "full"
    if found and shared and settings.ENVIRONMENT.sandbox == "require":
        raise SandboxUnavailable(
            "CATHERDER_SANDBOX=require, but there is a way out of the sandbox. Close it, or set"
            " CATHERDER_NETWORK=model, so that no step shares this machine's network.\n" + "\n".join(found)
        )
    return found


def _open_database(database: Mapping[str, Any]) -> Iterator[str]:
    if not str(database["ENGINE"]).endswith("postgresql"):
        return
    host, port = str(database.get("HOST") or ""), str(database.get("PORT") or 5432)
    host = LOOPBACK if not host or host.startswith("/") else host
    for user in dict.fromkeys([str(database.get("USER") or SUPERUSER), SUPERUSER]):
        if _database_accepts_login(host, port, user, str(database["NAME"])):
            yield (
                f"PostgreSQL at {host}:{port} lets “{user}” in without a password, so agents can read and"
                " change the portal's data. Replace “trust” by “scram-sha-256” in its pg_hba.conf, give the"
                " user a password, and put it into DATABASE_URL."
            )
            return


def _database_accepts_login(host: str, port: str, user: str, name: str) -> bool:
    try:
        # No password and no password file: none may come from this user's settings.
        psycopg.connect(
            host=host,
            port=port,
            user=user,
            dbname=name,
            password="",
            passfile=_NO_FILE,
            connect_timeout=TIMEOUT_SECONDS,
        ).close()
    except psycopg.Error:
        return False
    return True


def _open_redis(url: str | None) -> Iterator[str]:
    parts = urlsplit(url or "")
    if parts.scheme not in ("redis", "rediss"):  # a sandbox contains no Unix sockets
        return
    host, port = parts.hostname or LOOPBACK, parts.port or 6379
    if _redis_accepts_login(host, port, ssl=parts.scheme == "rediss"):
        yield (
            f"Redis at {host}:{port} lets anybody in without a password, so agents can read and change what"
            " the portal keeps there. Set “requirepass” in its redis.conf, and put that into REDIS_URL."
        )


def _redis_accepts_login(host: str, port: int, *, ssl: bool) -> bool:
    try:
        with Redis(
            host=host,
            port=port,
            ssl=ssl,
            socket_connect_timeout=TIMEOUT_SECONDS,
            socket_timeout=TIMEOUT_SECONDS,
        ) as client:
            return bool(client.ping())
    except (AuthenticationError, RedisError, OSError):
        return False

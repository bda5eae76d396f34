"""Whether the portal's own database and Redis let anybody in without a password.

A sandboxed process that shares the machine's network reaches them on loopback. Without a password that is a
way out of the sandbox: it could read and change everything that the portal holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from redis import Redis
from redis.exceptions import AuthenticationError, RedisError

from tasks_app.core.errors import SandboxUnavailable

#: Seconds that each attempt gets.
PATIENCE = 2
LOOPBACK = "127.0.0.1"
#: The name that nearly every PostgreSQL knows, with all rights.
SUPERUSER = "postgres"


def check_open_services() -> list[str]:
    """A sentence for each service of the portal that is open without a password; none if all is well.

    Tries to log in to the configured database and Redis as a process on this machine could. A service that
    does not answer is not open.
    """
    return [*_open_database(settings.DATABASES["default"]), *_open_redis(settings.ENVIRONMENT.redis_url)]


def require_closed_services() -> list[str]:
    """The same sentences, to be shown. Raises SandboxUnavailable for them if a sandbox is demanded."""
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
        if _database_lets_in(host, port, user, str(database["NAME"])):
            yield (
                f"PostgreSQL at {host}:{port} lets “{user}” in without a password, so agents can read and"
                " change the portal's data. Replace “trust” by “scram-sha-256” in its pg_hba.conf, give the"
                " user a password, and put it into DATABASE_URL."
            )
            return


def _database_lets_in(host: str, port: str, user: str, name: str) -> bool:
    try:
        # An empty password and an empty file of them: none may come from this user's own settings.
        psycopg.connect(
            host=host,
            port=port,
            user=user,
            dbname=name,
            password="",
            passfile=os.devnull,
            connect_timeout=PATIENCE,
        ).close()
    except psycopg.Error:
        return False
    return True


def _open_redis(url: str | None) -> Iterator[str]:
    place = urlsplit(url or "")
    if place.scheme not in ("redis", "rediss"):  # a sandbox sees no socket that is a file
        return
    host, port = place.hostname or LOOPBACK, place.port or 6379
    if _redis_lets_in(host, port, ssl=place.scheme == "rediss"):
        yield (
            f"Redis at {host}:{port} lets anybody in without a password, so agents can read and change what"
            " the portal keeps there. Set “requirepass” in its redis.conf, and put that into REDIS_URL."
        )


def _redis_lets_in(host: str, port: int, *, ssl: bool) -> bool:
    try:
        with Redis(
            host=host, port=port, ssl=ssl, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE
        ) as client:
            return bool(client.ping())
    except (AuthenticationError, RedisError, OSError):
        return False

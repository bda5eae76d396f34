"""PostgreSQL and Redis for one measurement: an empty database, and a server whose queue nobody else uses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests import machine
from tests.integration.redis_server import redis_server


@contextmanager
def own_services() -> Iterator[dict[str, str]]:
    """Yield the variables that name them to a portal."""
    with _empty_database() as database, redis_server() as redis:
        yield {"DATABASE_URL": database, "REDIS_URL": redis.url}


@contextmanager
def _empty_database() -> Iterator[str]:
    name = f"catherder_bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(machine.POSTGRES, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield f"{machine.POSTGRES.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(machine.POSTGRES, autocommit=True) as server:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

"""PostgreSQL and Redis for one measurement: an empty database, and a server whose queue nobody else uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.databases import empty_postgres
from tests.integration.redis_server import redis_server


@contextmanager
def own_services() -> Iterator[dict[str, str]]:
    """Yield the variables that name them to a portal."""
    with empty_postgres() as database, redis_server() as redis:
        yield {"DATABASE_URL": database, "REDIS_URL": redis.url}

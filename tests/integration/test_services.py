"""An installation on PostgreSQL and Redis: the addresses are all it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.installation import Installation
from tests.portal import WebServer

PUBLISH = """
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
layer = get_channel_layer()
async def there_and_back():
    mine = await layer.new_channel()
    await layer.group_add("task-1", mine)
    await layer.group_send("task-1", {"type": "news", "upto": 7})
    return await layer.receive(mine)
result = async_to_sync(there_and_back)()
"""


@pytest.mark.postgres
def test_the_tables_are_made_and_used_in_postgresql(postgres_url: str, tmp_path: Path) -> None:
    portal = Installation(tmp_path, DATABASE_URL=postgres_url)
    assert portal.manage("migrate", "--verbosity=0").returncode == 0
    assert portal.rows(
        "from django.db import connection;"
        "Project.objects.create(name='p', source='/p', branch='main');"
        "result = [connection.vendor, Project.objects.count()]"
    ) == ["postgresql", 1]
    assert not list(tmp_path.glob("catherder.sqlite3*"))


@pytest.mark.redis
def test_the_channel_layer_goes_through_redis(redis_url: str, tmp_path: Path) -> None:
    portal = WebServer(tmp_path, REDIS_URL=redis_url)
    assert portal.rows(PUBLISH) == {"type": "news", "upto": 7}

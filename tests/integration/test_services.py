"""An installation on PostgreSQL and Redis: the addresses are all it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from tasks_app.web.live.wakeup import CHANNEL
from tests.installation import Installation
from tests.portal import WebServer


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
def test_a_change_is_announced_through_redis(redis_url: str, tmp_path: Path) -> None:
    portal = WebServer(tmp_path, REDIS_URL=redis_url)
    with Redis.from_url(redis_url) as redis, redis.pubsub() as channel:
        channel.subscribe(CHANNEL)
        portal.rows(
            "project = Project.objects.create(name='p', source='/p', branch='main');"
            "task = Task.objects.create(project=project, slug='t', title='T', pipeline='default');"
            "Change.objects.create(task=task, kind='phase')"
        )
        while not (message := channel.get_message(timeout=20)) or message["type"] != "message":
            assert message is not None

"""The live socket of a real server, with writers in other processes (W3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis.asyncio import Redis
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tasks_app.web.live.wakeup import CHANNEL
from tests.integration.redis_server import redis_server
from tests.portal import WebServer

MAKE = """
from django.conf import settings
from django.test import Client
user = User.objects.create_superuser("ann", password="long enough")
project = Project.objects.create(name="ours", source="/srv/ours", branch="main")
task = Task.objects.create(project=project, slug="a", title="A", pipeline="feature")
client = Client()
client.force_login(user)
result = [task.pk, client.cookies[settings.SESSION_COOKIE_NAME].value]
"""


class Browser:
    """A logged-in browser on the portal's one task."""

    def __init__(self, portal: WebServer) -> None:
        self._portal = portal
        self.task, self._session = portal.rows(MAKE)

    def connect(self, query: str = "") -> connect:
        return connect(
            f"ws://{self._portal.address}/ws/live/{query}",
            origin=Origin(f"http://{self._portal.address}"),
            additional_headers={"Cookie": f"sessionid={self._session}"},
        )

    async def change(self) -> int:
        """Write a notice in a process of its own; its id."""
        code = f"result = Change.objects.create(task_id={self.task}, kind='phase').pk"
        return int(await asyncio.to_thread(self._portal.rows, code))

    async def receive(self, socket: ClientConnection) -> str:
        """Receive the message of a change; return the position."""
        message = await receive(socket)
        assert message == {"task": self.task, "kinds": ["phase"], "upto": message["upto"]}
        return str(message["upto"])


async def receive(socket: ClientConnection) -> Any:
    async with asyncio.timeout(30):
        return json.loads(await socket.recv())


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def portal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WebServer]:
    """On SQLite alone, on PostgreSQL alone, and on SQLite with Redis."""
    variables = {}
    if request.param == "postgres":
        variables["DATABASE_URL"] = request.getfixturevalue("postgres_url")
    if request.param == "redis":
        variables["REDIS_URL"] = request.getfixturevalue("redis_url")
    portal = WebServer(tmp_path / "data", **variables).start()
    yield portal
    portal.stop()


async def test_a_change_of_another_process_arrives_and_nothing_is_missed_over_a_restart(
    portal: WebServer,
) -> None:
    browser = Browser(portal)
    async with browser.connect() as socket:
        assert (await receive(socket))["hello"]
        await browser.change()
        position = await browser.receive(socket)

    said = portal.stop()
    assert "Traceback" not in said
    await browser.change()
    portal.start()

    async with browser.connect(f"?after={position}") as socket:
        assert (await receive(socket))["hello"]
        missed = await browser.receive(socket)
        await browser.change()
        assert await browser.receive(socket) not in (position, missed)


@pytest.mark.postgres
async def test_a_row_that_commits_late_with_a_lower_id_is_delivered(
    postgres_url: str, tmp_path: Path
) -> None:
    portal = WebServer(tmp_path / "data", DATABASE_URL=postgres_url).start()
    try:
        browser = Browser(portal)
        async with browser.connect() as socket:
            await receive(socket)
            insert = (
                "INSERT INTO tasks_app_change (task_id, kind, at) VALUES (%s, 'phase', now()) RETURNING id"
            )
            with psycopg.connect(postgres_url) as slow, psycopg.connect(postgres_url) as quick:
                (low,) = slow.execute(insert, [browser.task]).fetchone() or ()
                (high,) = quick.execute(insert, [browser.task]).fetchone() or ()
                quick.commit()
                assert low < high
                position = await browser.receive(socket)
                slow.commit()
            assert await browser.receive(socket) == position, "the position never goes back"
    finally:
        portal.stop()


@pytest.mark.redis
async def test_every_process_that_writes_notifies_through_redis(tmp_path: Path) -> None:
    """A process that ends at once, as a command does, sends its notification first."""
    with redis_server() as redis:
        browser = Browser(WebServer(tmp_path / "data", REDIS_URL=redis.url))
        async with Redis.from_url(redis.url) as client, client.pubsub(ignore_subscribe_messages=True) as told:
            await told.subscribe(CHANNEL)
            await told.get_message(ignore_subscribe_messages=False, timeout=30)

            await browser.change()

            assert await told.get_message(timeout=30) is not None


def test_a_writer_does_not_mind_that_redis_is_down(tmp_path: Path) -> None:
    portal = WebServer(tmp_path / "data", REDIS_URL="redis://127.0.0.1:1/0")

    assert portal.rows(MAKE)


def test_old_notices_are_pruned_but_never_the_newest(tmp_path: Path) -> None:
    portal = WebServer(tmp_path / "data")
    portal.rows(MAKE)

    left = portal.rows(
        """
from datetime import timedelta
ids = [Change.objects.create(task=Task.objects.get(), kind="task").pk for _ in range(3)]
recent = Change.objects.prune_changes(timedelta(days=1))
old = Change.objects.prune_changes(timedelta(0))
result = [recent, old, list(Change.objects.values_list("pk", flat=True)) == ids[-1:]]
"""
    )

    assert left == [0, 2, True]

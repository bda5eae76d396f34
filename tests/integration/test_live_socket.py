"""The live socket: who gets in, and who is told what (W1, W3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from catherder_site.asgi import application
from tasks_app.core.phases import Phase
from tasks_app.encryption import Purpose, decrypt, encrypt
from tasks_app.models import Change, Membership, Project, Role, Task, User
from tasks_app.services.accounts import end_sessions
from tasks_app.web.live import consumers, tailer
from tasks_app.web.live.consumers import Visibility, _open_sockets, look_up_visibility
from tasks_app.web.live.tailer import Tailer
from tasks_app.web.live.updates import REPLAY_LIMIT, broadcaster
from tasks_app.web.live.wakeup import ChangeDetector
from tests.browser import signed_in

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class World:
    """Two projects with a task each; Ann is a member of `ours`. `change` does the work of the tailer."""

    ann: User
    membership: Membership
    ours: Task
    theirs: Task
    client: Client
    tailer: Tailer

    async def change(self, *tasks: Task, kind: str = "phase") -> int:
        """Write and publish a change of each task; the id of the last one."""
        last = 0
        for task in tasks:
            last = (await Change.objects.acreate(task=task, kind=kind)).pk
        await self.tailer.publish_new()
        return last


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(consumers, "VISIBILITY_SECONDS", 0)
    made = await sync_to_async(_make)()
    await made.tailer.begin()
    yield made
    await made.tailer.close()


def _make() -> World:
    ann = User.objects.create_user("ann", password="long enough")
    ours, theirs = _make_a_task("ours"), _make_a_task("theirs")
    membership = Membership.objects.create(user=ann, project=ours.project)
    client = signed_in(ann)
    return World(ann, membership, ours, theirs, client, Tailer(ChangeDetector(), broadcaster))


def _make_a_task(name: str) -> Task:
    project = Project.objects.create(name=name, source=f"/srv/{name}", branch="main")
    return Task.objects.create(project=project, slug="a", title=name, pipeline="feature")


def _make_a_task_of(user: User) -> Task:
    task = _make_a_task("own")
    Membership.objects.create(user=user, project=task.project)
    return task


def scope(
    client: Client, *, query: str = "", origin: str = "http://localhost", path: str = "/ws/live/"
) -> dict[str, Any]:
    """What the web server says of a browser's handshake."""
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    return {
        "type": "websocket",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"origin", origin.encode()), (b"cookie", cookies.encode())],
        "subprotocols": [],
    }


class Browser:
    """A connected socket. (Channels' own communicator cannot be imported without daphne.)"""

    def __init__(self, client: Client, query: str = "") -> None:
        self._socket = ApplicationCommunicator(application, scope(client, query=query))

    async def __aenter__(self) -> Browser:
        await self._socket.send_input({"type": "websocket.connect"})
        assert (await self.message())["type"] == "websocket.accept"
        self.hello = await self.update()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._socket.wait()

    async def update(self) -> Any:
        """Return the next message, with its position as the id of a change."""
        update = json.loads((await self.message())["text"])
        if "upto" in update:
            update["upto"] = int(decrypt(update["upto"], Purpose.LIVE))
        return update

    async def message(self) -> Any:
        return await self._socket.receive_output(timeout=20)

    async def send(self, text: str) -> None:
        await self._socket.send_input({"type": "websocket.receive", "text": text})


def position(change_id: int) -> str:
    return encrypt(str(change_id), Purpose.LIVE)


async def refusal(client: Client, **handshake: str) -> Any:
    """What a browser gets instead of a connection."""
    refused = ApplicationCommunicator(application, scope(client, **handshake))
    await refused.send_input({"type": "websocket.connect"})
    message = await refused.receive_output(timeout=20)
    await refused.send_input({"type": "websocket.disconnect", "code": 1006})
    await refused.wait()
    return message


async def test_an_anonymous_visitor_is_refused(world: World) -> None:
    assert await refusal(Client()) == {"type": "websocket.close", "code": 4401}


async def test_the_number_of_sockets_of_a_user_is_limited(world: World, settings: Any) -> None:
    """Each costs the portal a file and work for every change; a page without one polls."""
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"sockets_of_one": 5})
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(Browser(world.client))
        async with Browser(world.client):
            assert await refusal(world.client) == {"type": "websocket.close", "code": 4429}
        async with Browser(world.client):
            pass
    assert not _open_sockets


@pytest.mark.parametrize("cookie", ["a\\000b", "x", "z" * 5000])
async def test_any_cookie_is_a_strangers(world: World, cookie: str) -> None:
    """A NUL in it was an error on PostgreSQL."""
    client = Client()
    client.cookies["sessionid"] = cookie
    assert (await refusal(client))["type"] == "websocket.close"


async def test_a_deactivated_user_is_refused(world: World) -> None:
    await User.objects.aupdate(is_active=False)

    assert await refusal(world.client) == {"type": "websocket.close", "code": 4401}


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "http://[", "null", ""])
async def test_another_sites_page_is_refused(world: World, origin: str) -> None:
    assert (await refusal(world.client, origin=origin))["type"] == "websocket.close"


async def test_an_unknown_address_is_refused_without_a_traceback(world: World) -> None:
    assert (await refusal(world.client, path="/ws/other/"))["type"] == "websocket.close"


async def test_the_first_frame_names_the_position_of_the_browser(world: World) -> None:
    last = await world.change(world.ours)

    async with Browser(world.client) as browser:
        assert browser.hello == {"hello": True, "upto": last}


async def test_a_member_gets_one_frame_per_task(world: World) -> None:
    async with Browser(world.client) as browser:
        await Change.objects.acreate(task=world.ours, kind="question")
        last = await world.change(world.ours)

        assert await browser.update() == {
            "task": world.ours.pk,
            "kinds": ["phase", "question"],
            "upto": last,
        }


async def test_a_phase_or_a_question_does_not_wait_for_the_pause_after_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MESSAGE_SECONDS", 3600)
    async with Browser(world.client) as browser:
        await world.change(world.ours, kind="events")
        assert (await browser.update())["kinds"] == ["events"]
        await world.change(world.ours, kind="events")
        await world.change(world.ours, kind="phase")
        assert (await browser.update())["kinds"] == ["events", "phase"]
        await world.change(world.ours, kind="question")
        assert (await browser.update())["kinds"] == ["question"]


@pytest.mark.parametrize("role", ["outsider", *Role.values, "site admin"])
async def test_users_get_updates_only_of_the_tasks_that_they_may_see(world: World, role: str) -> None:
    """W1: a stranger gets no connection at all, see above."""
    await world.membership.adelete()
    if role in Role.values:
        await Membership.objects.acreate(user=world.ann, project_id=world.ours.project_id, role=role)
    await User.objects.aupdate(is_superuser=role == "site admin")
    seen = {"outsider": [], "site admin": [world.theirs, world.ours]}.get(role, [world.ours])
    last = await sync_to_async(_make_a_task_of)(world.ann)
    async with Browser(world.client) as browser:
        await world.change(world.theirs, world.ours)
        await world.change(last)
        told = [(await browser.update())["task"] for _ in [*seen, last]]
        assert told == [task.pk for task in [*seen, last]]


@pytest.mark.parametrize("ending", ["password", "elsewhere", "logout"])
async def test_an_expired_session_closes_the_socket_before_anything_more_is_sent(
    world: World, ending: str
) -> None:
    """W1: whatever ended it. The answer to "who is this" counts for a second (VISIBILITY_SECONDS)."""
    async with Browser(world.client) as browser:
        await sync_to_async(_end)(world, ending)
        await world.change(world.ours)
        assert await browser.message() == {"type": "websocket.close", "code": 4401}


def _end(world: World, how: str) -> None:
    if how == "password":
        world.ann.set_password("another one")
        world.ann.save()
    elif how == "elsewhere":
        end_sessions(world.ann)
    else:
        world.client.post("/logout/")


async def test_nobody_is_notified_of_projects_that_they_may_not_see(world: World) -> None:
    async with Browser(world.client) as browser:
        await world.change(world.theirs)
        await world.change(world.ours)

        assert (await browser.update())["task"] == world.ours.pk


async def test_a_site_admin_is_notified_of_everything(world: World) -> None:
    await User.objects.aupdate(is_superuser=True)

    async with Browser(world.client) as browser:
        await world.change(world.theirs)

        assert (await browser.update())["task"] == world.theirs.pk


async def test_a_removed_member_gets_no_more_updates(world: World) -> None:
    """The permission is looked at again for every notice, here without any time of grace."""
    await Membership.objects.acreate(user=world.ann, project=await Project.objects.aget(name="theirs"))
    async with Browser(world.client) as browser:
        await world.change(world.ours)
        assert (await browser.update())["task"] == world.ours.pk

        await world.membership.adelete()
        await world.change(world.ours, world.theirs)

        assert (await browser.update())["task"] == world.theirs.pk


async def test_a_new_member_is_told_without_reconnecting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "VISIBILITY_SECONDS", 0.2)
    async with Browser(world.client) as browser:
        await Membership.objects.acreate(user=world.ann, project=await Project.objects.aget(name="theirs"))
        await world.change(world.theirs)

        assert (await browser.update())["task"] == world.theirs.pk


def test_a_permission_is_remembered_for_less_than_five_seconds() -> None:
    assert consumers.VISIBILITY_SECONDS < 5


@pytest.mark.parametrize("how", ["logout", "deactivated", "password"])
async def test_who_is_no_longer_logged_in_is_cut_off(world: World, how: str) -> None:
    async with Browser(world.client) as browser:
        if how == "logout":
            await sync_to_async(world.client.logout)()
        elif how == "deactivated":
            await User.objects.aupdate(is_active=False)
        else:
            world.ann.set_password("another long one")
            await world.ann.asave()
        await world.change(world.ours)

        assert await browser.message() == {"type": "websocket.close", "code": 4401}


async def test_a_browser_that_comes_back_is_told_what_it_missed(world: World) -> None:
    """On PostgreSQL it may be told again what it knows."""
    known = await world.change(world.ours)
    last = await world.change(world.theirs, world.ours, kind="events")

    async with Browser(world.client, f"after={position(known)}") as browser:
        update = await browser.update()

        assert (update["task"], update["upto"]) == (world.ours.pk, last)
        assert "events" in update["kinds"]


async def test_w1_no_position_tells_how_much_happens_in_other_projects(world: World) -> None:
    """Not even whether anything has: ids of changes are counted for all."""
    said = []
    for _ in range(2):
        socket = Browser(world.client)._socket
        await socket.send_input({"type": "websocket.connect"})
        await socket.receive_output(timeout=20)
        said.append(json.loads((await socket.receive_output(timeout=20))["text"])["upto"])
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait()
    assert not any(text.isdigit() for text in said) and said[0] != said[1]


@pytest.mark.parametrize("after", ["1", "-1", "abc", "1" * 30, "²", 999_999, -1])
async def test_a_browser_with_an_unknown_position_is_told_to_refresh(world: World, after: str | int) -> None:
    await world.change(world.ours)

    given = position(after) if isinstance(after, int) else after
    async with Browser(world.client, f"after={given}") as browser:
        assert await browser.update() == {"refresh": True}


async def test_a_browser_that_missed_too_much_is_told_to_refresh(world: World) -> None:
    first = await world.change(world.ours)
    await Change.objects.abulk_create(
        Change(task=world.ours, kind="events") for _ in range(REPLAY_LIMIT + 200)
    )

    async with Browser(world.client, f"after={position(first)}") as browser:
        assert await browser.update() == {"refresh": True}


async def test_what_browsers_say_is_ignored(world: World) -> None:
    async with Browser(world.client) as browser:
        await browser.send("{not JSON")
        await world.change(world.ours)

        assert (await browser.update())["task"] == world.ours.pk


async def test_a_stuck_browser_does_not_delay_the_others(world: World) -> None:
    """The stuck one's `send` never returns; the other gets its frame."""
    stuck = asyncio.Event()
    entered = asyncio.Event()
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    await arrived.put({"type": "websocket.connect"})

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send":
            entered.set()
            await stuck.wait()

    slow = asyncio.create_task(application(scope(world.client), arrived.get, send))
    await entered.wait()
    async with Browser(world.client) as browser:
        await world.change(world.ours)

        assert (await browser.update())["task"] == world.ours.pk
    await arrived.put({"type": "websocket.disconnect", "code": 1006})
    await slow


async def test_a_page_is_closed_after_a_logout_although_there_is_no_news(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "IDLE_SECONDS", 0.02)
    async with Browser(world.client) as browser:
        await sync_to_async(world.client.logout)()
        assert await browser.message() == {"type": "websocket.close", "code": 4401}


async def test_a_page_without_news_costs_one_question_to_the_database_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _note_look_ups(monkeypatch)
    monkeypatch.setattr(consumers, "_seconds_until_next_look", lambda: consumers.IDLE_SECONDS)
    async with Browser(world.client):
        await asyncio.sleep(0.3)
    assert len(asked) == 1 and consumers.IDLE_SECONDS >= 60


async def test_a_change_costs_two_look_ups_however_many_pages_are_open(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to wake asks for itself, or for all of those that wake with it; the others share the next."""
    clients = await sync_to_async(_more_members)(world.ours.project, 12)
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(Browser(client)) for client in clients for _ in range(2)]
        asked = _note_look_ups(monkeypatch)
        await world.change(world.ours)
        told = await asyncio.gather(*(browser.update() for browser in browsers))
        assert [update["task"] for update in told] == [world.ours.pk] * len(browsers)
        assert len(asked) <= 2
        assert {key for keys in asked for key in keys} == {client.session.session_key for client in clients}


async def test_a_fault_of_a_shared_look_up_closes_all_who_asked_and_the_next_one_works(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Collection[str]) -> dict[str, Visibility]:
        raise OperationalError("the database is away")

    async with Browser(world.client) as one, Browser(world.client) as other:
        with monkeypatch.context() as failing:
            failing.setattr(consumers, "look_up_visibility", fail)
            await world.change(world.ours)
            assert [(await page.message())["code"] for page in (one, other)] == [1011, 1011]
    async with Browser(world.client) as again:
        await world.change(world.ours)
        assert (await again.update())["task"] == world.ours.pk


@pytest.mark.parametrize("count", [1, 20])
def test_who_sees_what_is_looked_up_with_three_queries(
    django_assert_num_queries: DjangoAssertNumQueries, count: int
) -> None:
    world = _make()
    User.objects.create_superuser(username="root", password="!")
    clients = [*_more_members(world.ours.project, count), signed_in(User.objects.get(username="root"))]
    keys = [str(client.session.session_key) for client in clients]
    with django_assert_num_queries(3):
        found = look_up_visibility([*keys, "of nobody"])
    assert [found[key].project_ids for key in keys] == [
        *[frozenset({world.ours.project_id})] * count,
        frozenset({world.ours.project_id, world.theirs.project_id}),
    ]
    assert found.keys() == set(keys)


def _more_members(project: Project, count: int) -> list[Client]:
    users = [User.objects.create(username=f"member-{number}", password="!") for number in range(count)]
    for user in users:
        Membership.objects.create(user=user, project=project)
    return [signed_in(user) for user in users]


def _note_look_ups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the list to which the session keys of each look-up are added."""
    asked: list[list[str]] = []

    def noted(keys: Collection[str]) -> dict[str, Visibility]:
        asked.append(list(keys))
        return look_up_visibility(keys)

    monkeypatch.setattr(consumers, "look_up_visibility", noted)
    return asked


async def test_r3_an_open_page_learns_that_a_task_lost_its_worker_though_no_worker_lives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer, "SECONDS", 0.02)
    now = timezone.now()
    running = Task.objects.filter(pk=world.ours.pk)
    await running.aupdate(phase=Phase.RUNNING, lease_epoch=1, lease_expires=now - timedelta(seconds=1))
    async with Browser(world.client) as browser:
        watching = asyncio.create_task(world.tailer.watch_workers())
        while not await Change.objects.aexists():
            await asyncio.sleep(0.02)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await world.tailer.publish_new()
        assert (await browser.update())["task"] == world.ours.pk

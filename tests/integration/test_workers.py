"""Workers say that they live, and every page says when none does (W2, W3, R3)."""

from __future__ import annotations

import os
import re
import socket
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app import composition
from tasks_app.core.phases import Phase
from tasks_app.engine.workers import heartbeat
from tasks_app.engine.workers.heartbeat import Heartbeat, beat
from tasks_app.models import Task, WorkerBeat
from tasks_app.models.worker import ALIVE_PERIOD, KEPT, KNOWN_PERIOD
from tasks_app.operations.doctor import Level
from tasks_app.operations.doctor.services import workers
from tasks_app.sandbox import EnforcedLimit, Limits, Sandbox
from tasks_app.services.workers import hosts
from tasks_app.web import frame
from tests.browser import signed_in
from tests.factories import QuestionFactory, TaskFactory, UserFactory, WorkerBeatFactory

pytestmark = pytest.mark.django_db

SAID = "No worker is running."


def test_the_addresses_of_agents_are_those_of_workers_that_may_still_have_some() -> None:
    now = timezone.now()
    for name, seen_at, ended in (
        ("192.0.2.1", now, False),
        ("192.0.2.2", now - 2 * ALIVE_PERIOD, False),
        ("192.0.2.3", now - 2 * KNOWN_PERIOD, False),
        ("192.0.2.4", now, True),
    ):
        WorkerBeatFactory.create(ip_addresses=[name], seen_at=seen_at, ended=ended)
    WorkerBeatFactory.create(ip_addresses=None)
    assert WorkerBeat.objects.ip_addresses() == {"192.0.2.1", "192.0.2.2"}


@pytest.mark.parametrize(
    ("told", "own", "expected"),
    [
        ({}, {"10.1.1.1", "fd00::1"}, {"10.1.1.1", "fd00::1"}),
        ({"seen_address": "10.1.1.1"}, {"10.1.1.1", "10.2.2.2"}, {"10.1.1.1", "10.2.2.2"}),
        ({"seen_address": "8.8.8.8"}, {"172.17.0.2", "2a00::1"}, {"8.8.8.8", "2a00::1"}),
        ({"seen_address": "8.8.8.8", "network": "model"}, {"8.8.8.8"}, set()),
    ],
    ids=["on-the-portals-machine", "in-its-network", "behind-a-translator", "agents-without-a-network"],
)
def test_a_worker_tells_from_where_its_agents_may_reach_the_portal(
    told: dict[str, str], own: set[str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "own_addresses", lambda: own)
    hosts.follow_portal(told)
    try:
        beat(slots=1)
    finally:
        hosts.follow_portal({})
    assert set(WorkerBeat.objects.get().ip_addresses or ()) == expected


@pytest.fixture
def browser() -> Client:
    return signed_in(UserFactory.create(is_superuser=True, is_staff=True))


def seen(worker: WorkerBeat, ago: timedelta) -> None:
    WorkerBeat.objects.filter(pk=worker.pk).update(seen_at=timezone.now() - ago)


@pytest.mark.parametrize(
    "address", ["/tasks/", "/tasks/queue/", "/inbox/", "/tasks/new/", "/nowhere/", "/admin/", "/workers/"]
)
def test_every_page_says_that_no_worker_is_running(browser: Client, address: str) -> None:
    assert SAID in browser.get(address).text
    WorkerBeatFactory.create()
    assert SAID not in browser.get(address).text


def test_an_anonymous_visitor_does_not_see_the_banner(client: Client) -> None:
    assert SAID not in client.get("/login/").text


def test_a_worker_that_is_replaced_does_not_make_the_banner_flicker(browser: Client) -> None:
    """It was killed, or ended well, within the grace: another is starting."""
    worker = WorkerBeatFactory.create(ended=True)
    seen(worker, ALIVE_PERIOD - timedelta(seconds=5))
    assert SAID not in browser.get("/workers/").text
    seen(worker, ALIVE_PERIOD + timedelta(seconds=1))
    assert SAID in browser.get("/workers/").text


def test_the_banner_asks_again_more_often_while_there_is_no_worker(browser: Client) -> None:
    assert "every 4s" in browser.get("/workers/").text
    WorkerBeatFactory.create()
    assert "every 20s" in browser.get("/workers/").text


def test_counts_and_workers_cost_one_query_together(browser: Client) -> None:
    QuestionFactory.create_batch(2)
    WorkerBeatFactory.create_batch(3)
    with CaptureQueriesContext(connection) as captured:
        page = browser.get("/navigation/")
    assert 'data-open="2"' in page.text
    assert len(captured) == 3  # the session, the person, and this


def test_a_beat_says_who_lives_and_how_busy_it_is() -> None:
    for held in (True, True, False):
        task = TaskFactory.create(phase=Phase.RUNNING)
        away = timedelta(seconds=20 if held else -20)
        Task.objects.filter(pk=task.pk).update(lease_owner=composition.owner(), lease_expires=Now() + away)
    beat(slots=4)
    beat(slots=4)
    worker = WorkerBeat.objects.get()
    assert (worker.host, worker.pid) == (socket.gethostname(), os.getpid())
    assert (worker.slots, worker.busy, worker.ended) == (4, 2, False)
    assert worker.started_at <= worker.seen_at


def test_a_worker_that_ends_well_is_not_counted_any_more() -> None:
    beat(slots=4)
    assert WorkerBeat.objects.alive().count() == 1
    beat(slots=4, ended=True)
    assert not WorkerBeat.objects.alive().exists()
    assert WorkerBeat.objects.seen_recently().exists()
    beat(slots=4)  # another process got the same number
    assert WorkerBeat.objects.alive().count() == 1


def test_a_beat_from_before_the_clock_was_set_back_says_nothing(browser: Client) -> None:
    """R3: the worker died; its beat lies an hour ahead."""
    seen(WorkerBeatFactory.create(), -timedelta(hours=1))
    assert SAID in browser.get("/workers/").text


def test_old_workers_are_forgotten() -> None:
    old, new = WorkerBeatFactory.create(), WorkerBeatFactory.create()
    seen(old, KEPT + timedelta(minutes=1))
    assert WorkerBeat.objects.prune() == 1
    assert WorkerBeat.objects.get() == new


@pytest.mark.django_db(transaction=True)
def test_the_heartbeat_continues_after_a_failure_and_is_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[bool] = []

    def failing_once(*, slots: int, ended: bool = False, **_: object) -> bool:
        said.append(ended)
        if len(said) == 1:
            raise OSError("the database is away")
        beat(slots=slots, ended=ended)
        if len(said) == 2:
            thread._stop_wanted.set()
        return False

    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(heartbeat, "beat", failing_once)
    thread = Heartbeat(slots=2)
    thread.start()
    thread.join(30)
    assert said == [False, False, True]
    assert "a heartbeat failed" in caplog.text
    assert WorkerBeat.objects.get().ended


def visible_text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<svg.*?</svg>|<[^>]+>", " ", html, flags=re.DOTALL)).split())


NO_SANDBOX = Sandbox(None, "bubblewrap is not installed.")


def test_m7_a_beat_says_what_protects_its_machine_from_agents() -> None:
    bwrap = Sandbox(Path("/usr/bin/bwrap"), network_reason="", limits_tmp=True)
    beat(slots=1, sandbox=bwrap.with_limits(Limits(memory=2**30), cgroup=Path("/sys/fs/cgroup/x")))
    worker = WorkerBeat.objects.get()
    assert worker.unsandboxed == ""
    assert EnforcedLimit("Memory", "1 GiB", "cgroup") in worker.enforced_limits
    assert EnforcedLimit("Processes", "no limit", "") in worker.enforced_limits
    beat(slots=1, sandbox=NO_SANDBOX)
    assert WorkerBeat.objects.get().unsandboxed == "bubblewrap is not installed."


def test_m6_every_page_says_that_a_worker_has_no_sandbox(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the web server's machine has one."""
    bwrap = Sandbox(Path("/usr/bin/bwrap"), network_reason="")
    monkeypatch.setattr(frame, "sandbox", lambda: bwrap)
    WorkerBeatFactory.create(host="safe")
    assert "No sandbox" not in browser.get("/inbox/").text
    worker = WorkerBeatFactory.create(host="build-2", pid=7, unsandboxed="bubblewrap is not <installed>.")
    page = browser.get("/inbox/").text
    assert "No sandbox on some workers." in page
    assert "build-2:7: bubblewrap is not &lt;installed&gt;." in page
    WorkerBeat.objects.filter(pk=worker.pk).update(ended=True)
    assert "No sandbox" not in browser.get("/inbox/").text


def test_m7_the_queue_page_says_what_enforces_limits_on_each_worker(browser: Client) -> None:
    assert "Limits of each agent" not in browser.get("/installation/").text
    held = [("Memory", "1 GiB", "cgroup"), ("Processes", "no limit", "")]
    WorkerBeatFactory.create(host="good", pid=1, labels=["gpu", "toolchain:rust"], limits=held)
    page = visible_text(browser.get("/installation/").text)
    assert (
        "good:1 0 of 4 slots in use · has gpu and the toolchain rust Limits of each agent and check" in page
    )
    assert "Memory 1 GiB cgroup Processes no limit" in page
    assert "Not enforced" not in page and "No sandbox" not in page
    WorkerBeatFactory.create(host="weak", pid=2, limits=[("CPU cores", "2", "")], unsandboxed="Off.")
    WorkerBeatFactory.create(host="older", pid=3, limits=None)
    page = visible_text(browser.get("/installation/").text)
    assert "weak:2 0 of 4 slots in use No sandbox: Off. Not enforced: CPU cores 2 Limits" in page
    assert "older:3 0 of 4 slots in use Its version does not report its limits." in page


def test_m7_unfolded_limits_of_a_worker_stay_so_when_the_page_is_refreshed(browser: Client) -> None:
    """What was unfolded is found again by its id."""
    worker = WorkerBeatFactory.create(limits=[("Memory", "1 GiB", "cgroup")])
    assert f'<details class="fold" id="worker-{worker.pk}-limits">' in browser.get("/installation/").text


def test_m7_doctor_names_workers_whose_agents_nothing_holds() -> None:
    WorkerBeatFactory.create(host="good", limits=[("Memory", "1 GiB", "cgroup"), ("Cores", "no limit", "")])
    assert [finding.level for finding in workers()] == [Level.OK]
    WorkerBeatFactory.create(host="weak", pid=2, limits=[("Memory", "1 GiB", "")], unsandboxed="Off.")
    said = [finding.text for finding in workers() if finding.level is Level.WARNING]
    assert said == ["weak:2 has no sandbox: Off.", "on weak:2 nothing holds agents to 1 GiB of memory"]

"""A stranger with many connections does not stop the portal (R4), as users start it."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_reverse_proxies import PROXIES, free_port
from tests.portal import UpPortal

IDLE = 1_500
#: Opens silent connections, then asks for a page, then counts how many the portal still keeps.
OPENS = """\
import http.client, resource, select, socket, sys
port, many = int(sys.argv[1]), int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(many)]
for _ in range(3):
    portal = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    portal.request("GET", "/login/", headers={"Host": "localhost"})
    print(portal.getresponse().status)
    portal.close()
poll = select.poll()
for one in silent:
    poll.register(one, select.POLLIN)
print(many - len(poll.poll(0)))
"""


@pytest.mark.once(on="sqlite")
def test_a_page_is_answered_beside_1500_silent_connections(tmp_path: Path) -> None:
    portal = UpPortal.migrated(tmp_path / "data").start()
    try:
        port = portal.port
        done = subprocess.run(
            [sys.executable, "-c", OPENS, port, str(IDLE)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        *statuses, kept = done.stdout.split()
        assert statuses == ["200"] * 3, done.stderr
        assert int(kept) <= 256
    finally:
        portal.stop()
    assert sum(map(len, portal.said)) < 20_000


#: Keeps many bodies coming from several addresses, a byte at a time. It opens up to 200 a second until it has
#: them all, and then 40 a second in place of those that were closed.
DRIPS = """\
import resource, socket, sys, time
port, many, path, cookie, *addresses = sys.argv[1:]
port, many = int(port), int(many)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
head = f"POST {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nCookie: {cookie}\\r\\n"
head += "Content-Length: 60000\\r\\n\\r\\n"
def opened(address):
    one = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(address, 0))
    one.sendall(head.encode())
    one.setblocking(False)
    return one
drips, opens, full = [], 0, False
while True:
    for one in list(drips):
        try:
            one.send(b"x")
        except OSError:
            drips.remove(one)
    for number in range(min(many - len(drips), 20 if full else 100)):
        try:
            drips.append(opened(addresses[number % len(addresses)]))
        except OSError:
            break
        opens += 1
    if not full and opens >= many:
        full = True
        print("dripping", flush=True)
    time.sleep(0.5)
"""
#: What a service and a login shell have unless somebody says more.
OPEN_FILES = 1024


@contextmanager
def dripping(
    port: str | int, *addresses: str, many: int, path: str = "/login/", cookie: str = ""
) -> Iterator[None]:
    """Hold the attack; it has opened all its connections before."""
    command = [sys.executable, "-c", DRIPS, str(port), str(many), path, cookie or "x=y", *addresses]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "dripping\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def page_of(address: str, port: str | int) -> tuple[int, float]:
    """Return the status of a page for this address, and in how many seconds it came."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30, source_address=(address, 0))
    try:
        connection.request("GET", "/login/")
        status = connection.getresponse().status
    finally:
        connection.close()
    return status, time.monotonic() - begun


@pytest.mark.once(on="sqlite")
@pytest.mark.parametrize("proxy", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in PROXIES])
def test_900_bodies_that_drip_through_a_proxy_take_the_portal_from_nobody(proxy: str, tmp_path: Path) -> None:
    """W1, R4: neither from others nor from those who share the stranger's address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    portal = UpPortal.migrated(tmp_path / "portal")
    portal.variables |= {
        "CATHERDER_URL": url,
        "CATHERDER_PROXY": "127.0.0.0/8",
        "CATHERDER_LOCAL_SANDBOXES": "allow",  # other tests have agents, and all addresses here are local
    }
    portal.start("--no-worker", open_files=OPEN_FILES)
    try:
        strangers = [f"127.0.0.{number}" for number in range(2, 6)]
        cookie = f"sessionid={'a' * 32}"
        with PROXIES[proxy](portal, url, tmp_path):
            page_of("127.0.0.1", port)  # the first one after a start takes long
            with dripping(port, *strangers, many=900, cookie=cookie):
                # A busy machine needs seconds until it has taken 900 connections; they drip from then on.
                assert page_of("127.0.0.1", port)[0] == 200
                pages = []
                for number in range(30):
                    pages.append(page_of(f"127.0.0.{1 + number % 3}", port))
                    time.sleep(0.2)
            assert [status for status, _ in pages] == [200] * 30
            assert max(seconds for _, seconds in pages) < 2, pages
    finally:
        portal.stop()


@pytest.mark.once(on="sqlite")
@pytest.mark.parametrize("path", ["/login/", "/worker/hello"])
def test_300_bodies_that_drip_without_a_proxy_take_the_portal_from_no_neighbour(
    path: str, tmp_path: Path
) -> None:
    """An office has one address, for which there are 256 connections."""
    portal = UpPortal.migrated(tmp_path / "data").start("--no-worker")
    try:
        with dripping(portal.port, "127.0.0.2", many=300, path=path):
            assert [page_of("127.0.0.2", portal.port)[0] for _ in range(10)] == [200] * 10
    finally:
        portal.stop()

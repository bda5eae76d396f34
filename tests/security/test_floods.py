"""A stranger with many connections does not stop the portal (R4), as users start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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

"""The network of the hosts in `tests/hosts.py`: what happens to one of them does not reach the others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import Network

pytestmark = pytest.mark.hosts

CONNECT = "import socket; socket.create_connection(({!r}, {}), 5); print('connected')"


@pytest.fixture
def service() -> Iterator[tuple[str, int]]:
    """The address of a service on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()
        listener.settimeout(0.1)

        def accept() -> None:
            while not stopped.is_set():
                try:
                    listener.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()
        stopped.set()
        thread.join()


def test_the_others_reach_a_service_after_a_host_is_destroyed(
    service: tuple[str, int], tmp_path: Path
) -> None:
    """One of the cables has the lowest address, so each host is destroyed in turn."""
    (tmp_path / "data").mkdir()
    with Network() as network:
        address, _, port = network.offer("service", service).partition(":")
        hosts = [network.host(name, tmp_path / name, tmp_path / "data") for name in ("a", "b", "c")]
        code = CONNECT.format(address, port)
        while hosts:
            for host in hosts:
                assert host.python(code) == "connected\n", host.name
            hosts.pop(0).destroy()

"""The socket that the web server listens on."""

from __future__ import annotations

import socket

from tasks_app.management.supervisor import listen


def test_f_a_response_does_not_wait_until_its_first_part_is_acknowledged() -> None:
    """The web server opens the socket by its number, as one of another family, and sets no options itself."""
    with (
        listen("127.0.0.1", 0) as listener,
        socket.fromfd(listener.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as opened,
        socket.create_connection(listener.getsockname()),
        opened.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

"""Forwarding a port of a sandbox's own loopback to a Unix socket, for a sandbox without a network.

`bubblewrap.py` passes the text of this file to the portal's Python: `forward.py SOCKET PORT PROGRAM
ARGUMENTS…`. It listens, starts a child that passes bytes on, and becomes the program. The child ends with the
sandbox.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress

#: Maximum connections at once; further ones wait to be accepted.
MAX_CONNECTIONS = 64
CHUNK = 65_536


def serve(listening: socket.socket, path: str) -> None:
    """Pass bytes on in both directions, for ever."""
    slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
    while True:
        slots.acquire()
        client, _ = listening.accept()
        threading.Thread(target=_forward, args=(client, path, slots), daemon=True).start()


def _forward(client: socket.socket, path: str, slots: threading.BoundedSemaphore) -> None:
    try:
        with client, socket.socket(socket.AF_UNIX) as service:
            service.connect(path)
            back = threading.Thread(target=_pass_on, args=(service, client), daemon=True)
            back.start()
            _pass_on(client, service)
            back.join()
    except OSError:
        pass  # the client sees its connection end
    finally:
        slots.release()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until the source ends its output, or either side is gone."""
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def main(argv: list[str]) -> int:
    """Become the program. Returns the exit code of a shell only if that fails."""
    path, port, *program = argv
    listening = socket.create_server(("127.0.0.1", int(port)), backlog=MAX_CONNECTIONS)
    if os.fork() == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):  # readers of the program's output must see its end
            os.dup2(nothing, standard)
        os.closerange(3, listening.fileno())
        os.closerange(listening.fileno() + 1, 256)
        serve(listening, path)
    try:
        os.execvp(program[0], program)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

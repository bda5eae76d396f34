"""The open sockets of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

from tasks_app.web.live.updates import Notice


class Receiver(Protocol):
    """An open socket. `receive_notices` must not wait: it is called for all sockets in turn."""

    def receive_notices(self, notices: Sequence[Notice]) -> None: ...


class Hub:
    """Hands notices to all sockets. Belongs to the event loop; not for other threads.

    Not a channel layer: the in-memory one drops what exceeds its capacity without a word, and one in
    Redis would cut the sockets off while Redis is down, although the rows tell all there is to tell.
    """

    def __init__(self) -> None:
        self._receivers: WeakSet[Receiver] = WeakSet()

    def join(self, receiver: Receiver) -> None:
        self._receivers.add(receiver)

    def leave(self, receiver: Receiver) -> None:
        self._receivers.discard(receiver)

    def hand_out(self, notices: Sequence[Notice]) -> None:
        if notices:
            for receiver in list(self._receivers):
                receiver.receive_notices(notices)


hub = Hub()

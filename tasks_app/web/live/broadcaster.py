"""The open sockets of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

from tasks_app.web.live.updates import TaskUpdate


class Subscriber(Protocol):
    """An open socket. `receive_updates` must not wait: it is called for all sockets in turn."""

    def receive_updates(self, updates: Sequence[TaskUpdate]) -> None: ...


class Broadcaster:
    """Passes updates to all sockets. Belongs to the event loop; not for other threads.

    Not a channel layer: the in-memory one silently drops what exceeds its capacity, and one in Redis would
    cut off the sockets while Redis is down, although the rows contain all that is needed.
    """

    def __init__(self) -> None:
        self._subscribers: WeakSet[Subscriber] = WeakSet()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def publish(self, updates: Sequence[TaskUpdate]) -> None:
        if updates:
            for subscriber in list(self._subscribers):
                subscriber.receive_updates(updates)


broadcaster = Broadcaster()

"""The updates that one browser has not been sent yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tasks_app.web.live.updates import TaskUpdate
from tasks_app.web.live.visibility import Visibility

Message = dict[str, object]

#: Tasks that can wait in one queue. A browser that is further behind fetches everything again.
LIMIT = 500


class SendQueue:
    """At most one update per task, and at most `LIMIT` of them, however slow the browser is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[int, tuple[TaskUpdate, float]] = {}
        self._refresh = False

    def __bool__(self) -> bool:
        return self._refresh or bool(self._waiting)

    def put(self, updates: Iterable[TaskUpdate]) -> None:
        received_at = self._clock()
        for update in updates:
            waiting = self._waiting.get(update.task_id)
            merged = waiting[0].merged(update) if waiting else update
            self._waiting[update.task_id] = (merged, received_at)
        if len(self._waiting) > LIMIT:
            self.put_refresh()

    def put_refresh(self) -> None:
        """Replace everything that waits by one message to fetch everything."""
        self._waiting.clear()
        self._refresh = True

    def take(self, visibility: Visibility) -> list[Message]:
        """Return the messages that may be sent now, oldest changes first.

        A project counts as hidden only if that was looked up after the update was received: until then the
        update waits, so that a new member of a project misses nothing.
        """
        messages: list[Message] = [{"refresh": True}] if self._refresh else []
        self._refresh = False
        for update, received_at in sorted(self._waiting.values(), key=lambda waiting: waiting[0].upto):
            if update.project_id in visibility.project_ids:
                messages.append(update.as_message())
            elif received_at > visibility.looked_up_at:
                continue
            del self._waiting[update.task_id]
        return messages

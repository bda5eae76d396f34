"""What one browser has yet to be told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tasks_app.web.live.updates import Notice
from tasks_app.web.live.visibility import Access

Frame = dict[str, object]

#: Tasks that can wait in one outbox. A browser that is further behind fetches everything anew.
LIMIT = 500


class Outbox:
    """At most one notice per task, and at most `LIMIT` of them, however slow the browser is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[int, tuple[Notice, float]] = {}
        self._refresh = False

    def __bool__(self) -> bool:
        return self._refresh or bool(self._waiting)

    def put(self, notices: Iterable[Notice]) -> None:
        came = self._clock()
        for notice in notices:
            waiting = self._waiting.get(notice.task)
            self._waiting[notice.task] = (waiting[0].merged(notice) if waiting else notice, came)
        if len(self._waiting) > LIMIT:
            self.put_refresh()

    def put_refresh(self) -> None:
        """Instead of all that waits, tell the browser to fetch everything."""
        self._waiting.clear()
        self._refresh = True

    def take(self, access: Access) -> list[Frame]:
        """The frames that may be sent now, oldest news first.

        A denial counts only if the access was looked up after the notice came: until then the notice
        waits, so that a new member of a project misses nothing.
        """
        frames: list[Frame] = [{"refresh": True}] if self._refresh else []
        self._refresh = False
        for notice, came in sorted(self._waiting.values(), key=lambda waiting: waiting[0].upto):
            if notice.project in access.projects:
                frames.append(notice.frame())
            elif came > access.at:
                continue
            del self._waiting[notice.task]
        return frames

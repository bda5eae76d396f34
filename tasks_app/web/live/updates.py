"""What open browsers are told, and which changes were told already: pure values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Seconds after which a missing id is taken for rolled back. A transaction here lasts milliseconds.
GAP_SECONDS = 30.0

#: The most missing ids remembered below a new one.
GAP_LIMIT = 1_000


@dataclass(frozen=True)
class News:
    """One change row: which task of which project has news of which kind."""

    id: int
    task: int
    project: int
    kind: str


@dataclass(frozen=True)
class Notice:
    """All news of one task up to the change `upto`."""

    task: int
    project: int
    kinds: frozenset[str]
    upto: int

    def merged(self, other: Notice) -> Notice:
        return Notice(self.task, self.project, self.kinds | other.kinds, max(self.upto, other.upto))

    def frame(self) -> dict[str, object]:
        """As the browser gets it."""
        return {"task": self.task, "kinds": sorted(self.kinds), "upto": self.upto}


def coalesce(news: Iterable[News]) -> list[Notice]:
    """One notice per task."""
    notices: dict[int, Notice] = {}
    for item in news:
        notice = Notice(item.task, item.project, frozenset({item.kind}), item.id)
        notices[item.task] = notices[item.task].merged(notice) if item.task in notices else notice
    return list(notices.values())


class Ledger:
    """Which changes were seen: every id up to `last` but for the gaps.

    In PostgreSQL a transaction that commits late brings rows with ids below `last`. Each id that was
    skipped is therefore looked for again until it comes or `GAP_SECONDS` are over.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.last = 0
        self._clock = clock
        self._gaps: dict[int, float] = {}

    def gaps(self) -> list[int]:
        """The skipped ids that may still come."""
        oldest = self._clock() - GAP_SECONDS
        self._gaps = {id: since for id, since in self._gaps.items() if since >= oldest}
        return sorted(self._gaps)

    def admit(self, news: Iterable[News]) -> None:
        """Remember the changes as seen; they come in the order of their ids."""
        now = self._clock()
        for item in news:
            if item.id > self.last:
                first = max(self.last + 1, item.id - GAP_LIMIT)
                self._gaps.update(dict.fromkeys(range(first, item.id), now))
                self.last = item.id
            else:
                self._gaps.pop(item.id, None)

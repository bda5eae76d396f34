"""Which events a reader wants: the same condition for rows, for blocks and for the events in them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Q

from tasks_app.models import EventKind

_FAILED_ROWS = (
    Q(kind=EventKind.ERROR)
    | Q(kind=EventKind.CHECK, payload__passed=False)
    | Q(kind=EventKind.RESULT, payload__is_error=True)
    | Q(kind=EventKind.TOOL_RESULT, payload__is_error=True, payload__turned_down__isnull=True)
)


def is_failure(kind: str, payload: object) -> bool:
    """Return what `_FAILED_ROWS` asks the database."""
    match kind, payload:
        case EventKind.ERROR, _:
            return True
        case EventKind.CHECK, {"passed": False}:
            return True
        case EventKind.TOOL_RESULT, {"is_error": True, "turned_down": _}:
            return False
        case EventKind.RESULT | EventKind.TOOL_RESULT, {"is_error": True}:
            return True
    return False


@dataclass(frozen=True)
class Selection:
    """Events of some kinds (None: of all), only failures, or only those that came from the agent process."""

    kinds: frozenset[str] | None = None
    failures: bool = False
    from_agent: bool = False

    @classmethod
    def of(cls, kinds: Collection[str]) -> Selection:
        return cls(frozenset(kinds))

    @property
    def rows(self) -> Q:
        """The condition for rows of events."""
        found = Q()
        if self.kinds is not None:
            found &= Q(kind__in=self.kinds)
        if self.failures:
            found &= _FAILED_ROWS
        if self.from_agent:
            found &= Q(raw__isnull=False)
        return found

    @property
    def blocks(self) -> Q:
        """The condition for blocks that may contain such events."""
        found = Q()
        if self.kinds is not None:
            found &= blocks_with(self.kinds)
        if self.failures:
            found &= Q(failures__gt=0)
        return found

    def has_kind(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds


def blocks_with(kinds: Collection[str]) -> Q:
    """Return the condition for blocks with events of these kinds. Django writes no valid SQL for no key."""
    if not kinds:
        return Q(pk__in=[])
    return Q(kinds__has_any_keys=sorted(kinds))


EVERYTHING = Selection()
FAILURES = Selection(failures=True)

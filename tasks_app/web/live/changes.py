"""Reading the change rows."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.models import Max, Q

from tasks_app.models import Change
from tasks_app.web.live.updates import ChangeRow

#: Rows read at a time.
PAGE = 5_000

#: A browser that missed more changes than this is told to fetch everything again.
REPLAY_LIMIT = 2_000

#: How far below a known id a row may still have been uncommitted when that id was announced.
LATE = 100


def newest_change_id() -> int:
    """Return the id of the newest change; 0 if there is none."""
    return Change.objects.aggregate(newest=Max("pk"))["newest"] or 0


def read_changes(last: int, gaps: Sequence[int] = (), *, limit: int = PAGE) -> list[ChangeRow]:
    """Return the changes after `last`, and those of `gaps` that were committed since, ordered by id."""
    wanted = Q(pk__gt=last)
    if gaps:
        wanted |= Q(pk__in=gaps)
    rows = Change.objects.filter(wanted).order_by("pk")
    return [ChangeRow(*row) for row in rows.values_list("pk", "task_id", "task__project_id", "kind")[:limit]]


def missed_changes(after: int) -> list[ChangeRow] | None:
    """Return what a browser missed that knows the changes up to `after`; None if that is no longer known.

    It may contain changes that the browser knows, but never too few.
    """
    oldest = Change.objects.order_by("pk").values_list("pk", flat=True).first() or 0
    if after > newest_change_id() or after + 1 < oldest:
        return None
    # SQLite has one writer at a time, so that ids become visible in their order.
    late = 0 if connection.vendor == "sqlite" else LATE
    changes = read_changes(after - late, limit=REPLAY_LIMIT + 1)
    return None if len(changes) > REPLAY_LIMIT else changes

"""Reading the change rows."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.models import Max, Q

from tasks_app.models import Change
from tasks_app.web.live.updates import News

#: Rows read at a time.
PAGE = 5_000

#: A browser that missed more changes than this is told to fetch everything anew.
REPLAY_LIMIT = 2_000

#: How far below a given id a row may still have been uncommitted when that id was told.
LATE = 100


def newest() -> int:
    """The id of the newest change; 0 if there is none."""
    return Change.objects.aggregate(newest=Max("pk"))["newest"] or 0


def read_news(last: int, gaps: Sequence[int] = (), *, limit: int = PAGE) -> list[News]:
    """The changes after `last`, and those of `gaps` that came meanwhile, in the order of their ids."""
    wanted = Q(pk__gt=last)
    if gaps:
        wanted |= Q(pk__in=gaps)
    rows = Change.objects.filter(wanted).order_by("pk")
    return [News(*row) for row in rows.values_list("pk", "task_id", "task__project_id", "kind")[:limit]]


def replay(after: int) -> list[News] | None:
    """What a browser missed that knows everything up to `after`; None if that cannot be said any more.

    It may be told again what it knows, never too little.
    """
    oldest = Change.objects.order_by("pk").values_list("pk", flat=True).first() or 0
    if after > newest() or after + 1 < oldest:
        return None
    # SQLite has one writer at a time, so that ids become visible in their order.
    late = 0 if connection.vendor == "sqlite" else LATE
    news = read_news(after - late, limit=REPLAY_LIMIT + 1)
    return None if len(news) > REPLAY_LIMIT else news

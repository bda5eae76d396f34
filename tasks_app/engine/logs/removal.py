"""Removing the logs of tasks that ended long ago: events, blocks of events, and transcripts of sessions.

Tasks, steps, runs, questions, answers, decisions, results and the audit log stay. A task that is resumed
later begins a new session, which is told the goal and finds the files, but not what was done before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Length
from django.utils import timezone

from tasks_app.models import Event, EventBlock, Run, SessionEntry, Task
from tasks_app.models.task import HAS_LOG

#: Maximum rows, and the larger blocks, that one transaction deletes.
ROWS_AT_ONCE = 2_000
BLOCKS_AT_ONCE = 50
#: Transactions of one sweep.
AT_ONCE = 20


@dataclass(frozen=True)
class RemovedLog:
    """The size of a removed log: events, lines of transcripts, and the bytes of both without indexes."""

    task: Task
    events: int = 0
    lines: int = 0
    size: int = 0


def remove_due_logs() -> int:
    """Remove logs that are older than the setting says. For the sweeper.

    A worker host does not: the setting is the portal's.
    """
    environment = settings.ENVIRONMENT
    if environment.worker_token or not environment.keep_logs_days:
        return 0
    return remove_some_logs(older_than=timedelta(days=environment.keep_logs_days))


def remove_some_logs(*, older_than: timedelta) -> int:
    """Remove logs of tasks that ended longer ago, up to a limit; return how many transactions that took."""
    before, done = timezone.now() - older_than, 0
    for task in _due(before).order_by("ended_at")[:AT_ONCE]:
        more = True
        while more and done < AT_ONCE:
            more = _remove_some(task, before)
            done += 1
    return done


def remove_logs(*, older_than: timedelta, dry_run: bool = False) -> Iterator[RemovedLog]:
    """Remove the logs of all tasks that ended longer ago, and yield what they had."""
    before = timezone.now() - older_than
    # The ids first: on SQLite nobody can write who has not read a query to its end, once another has written.
    for pk in list(_due(before).order_by("ended_at").values_list("pk", flat=True)):
        if (task := _due(before).filter(pk=pk).first()) is None:
            continue
        found = _measure(task)
        if not dry_run:
            while _remove_some(task, before):
                pass
        yield found


def _due(before: datetime) -> QuerySet[Task]:
    """Return tasks that ended before, which alone have that time, by the index of those that have a log."""
    return Task.objects.filter(HAS_LOG, ended_at__lt=before)


def _parts(task: Task) -> tuple[QuerySet[Event], QuerySet[EventBlock], QuerySet[SessionEntry]]:
    """Return everything that a log consists of. Lines of transcripts refer to no other row."""
    sessions = Run.objects.filter(step__task=task).values_list("session_id", flat=True).distinct()
    return (
        Event.objects.filter(run__step__task=task),
        EventBlock.objects.filter(run__step__task=task),
        SessionEntry.objects.filter(session_id__in=[str(one) for one in sessions]),
    )


def _measure(task: Task) -> RemovedLog:
    rows, blocks, lines = _parts(task)
    in_rows = _size(rows, "payload") + _size(rows, "raw")
    in_blocks = blocks.aggregate(size=Sum(Length("content")))["size"] or 0
    events = rows.count() + sum(sum(kinds.values()) for kinds in blocks.values_list("kinds", flat=True))
    found = RemovedLog(task, events, lines.count())
    return replace(found, size=in_rows + in_blocks + _size(lines, "entry"))


def _size(rows: QuerySet[Any], name: str) -> int:
    size: int | None = rows.aggregate(size=Sum(Length(Cast(name, TextField()))))["size"]
    return size or 0


@transaction.atomic
def _remove_some(task: Task, before: datetime) -> bool:
    """Delete a part of the log, and note when; return whether there is more.

    Nothing is deleted of a task that was resumed meanwhile. As long as there is more, the time that is noted
    is before the task's end: so it stays due, and pages say already that something is gone.
    """
    if not _due(before).select_for_update().filter(pk=task.pk).values_list("pk").first():
        return False
    left = False
    for rows, most in zip(_parts(task), (ROWS_AT_ONCE, BLOCKS_AT_ONCE, ROWS_AT_ONCE), strict=True):
        some = list(rows.order_by("pk").values_list("pk", flat=True)[:most])
        rows.model._default_manager.filter(pk__in=some).delete()
        left = left or len(some) == most
    noted = F("ended_at") - timedelta(microseconds=1) if left else timezone.now()
    Task.objects.filter(pk=task.pk).update(log_removed_at=noted)
    return left

"""Storing the events of runs that ended long ago as compressed blocks, which take a fourth of the space.

The rows are read and compressed without a transaction. One short transaction for each block then stores it
and deletes its rows, so that on SQLite others who write wait only for that. It locks the task's row, as all
who append events do, and is given up unless it deletes exactly the rows that were read. So a process may be
killed at any point, and several may do this at the same time.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tasks_app.history.events.blocks import MOST_EVENTS, make_block
from tasks_app.models import Event, EventBlock, Run, Task

#: Transactions of one sweep.
AT_ONCE = 20
#: Rows of events that are read at a time; each may have some megabytes.
_ROWS_AT_ONCE = 5


class _ChangedMeanwhileError(Exception):
    """Another process was first."""


def compact_due_runs() -> int:
    """Compact runs that ended longer ago than the setting says. For the sweeper, not for worker hosts."""
    environment = settings.ENVIRONMENT
    if environment.worker_token or not environment.compact_after_hours:
        return 0
    return compact_runs(older_than=timedelta(hours=environment.compact_after_hours))


def compact_runs(*, older_than: timedelta, at_once: int = AT_ONCE) -> int:
    """Store up to `at_once` blocks of runs that ended longer ago; return how many transactions that took.

    The runs are taken in any order, so that workers that do this at the same time rarely take the same.
    """
    due = _due(timezone.now() - older_than)
    runs = list(due.select_related("step").defer("prompt").order_by("ended_at")[:at_once])
    random.shuffle(runs)
    done = 0
    for run in runs:
        more = True
        while more and done < at_once:
            more = _compact_once(run, due)
            done += 1
    return done


def _due(before: datetime) -> QuerySet[Run]:
    return Run.objects.filter(compacted_at=None, ended_at__lt=before).exclude(outcome="")


def _compact_once(run: Run, due: QuerySet[Run]) -> bool:
    """Store one block of the run. Return whether it may have more events, and nobody else was first."""
    rows = Event.objects.filter(run=run).order_by("seq")
    block = make_block(run, rows[:MOST_EVENTS].iterator(_ROWS_AT_ONCE))
    try:
        return _store(run, block, due)
    except _ChangedMeanwhileError:
        return False


@transaction.atomic
def _store(run: Run, block: EventBlock | None, due: QuerySet[Run]) -> bool:
    """Put the block in place of its rows; return whether there are more.

    Raises _ChangedMeanwhileError, and changes nothing, if they are not the rows that were read.
    """
    Task.objects.select_for_update().filter(pk=run.step.task_id).values_list("pk").first()
    if not due.filter(pk=run.pk).exists():
        raise _ChangedMeanwhileError
    if block is not None:
        first, last = block.first_seq, block.last_seq
        deleted, _ = Event.objects.filter(run=run, seq__gte=first, seq__lte=last).delete()
        if deleted != sum(block.kinds.values()):
            raise _ChangedMeanwhileError
        block.save(force_insert=True)
    if Event.objects.filter(run=run).exists():
        return True
    Run.objects.filter(pk=run.pk).update(compacted_at=timezone.now())
    return False

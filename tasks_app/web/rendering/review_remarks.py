"""Requests for changes, and the agents' replies in threads, which stand between the events of a log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from tasks_app.models import Review, ReviewVerdict, Task, ThreadComment


@dataclass(frozen=True)
class Remark:
    """A request for changes, or a `reply` of an agent. `key` is the same wherever it is shown."""

    key: str
    at: datetime
    review: Review | None = None
    reply: ThreadComment | None = None


def change_requests_of(task: Task) -> QuerySet[Review]:
    return task.reviews.sent().filter(verdict=ReviewVerdict.REQUEST_CHANGES)


def remarks_of(task: Task, *, runs: Collection[int]) -> list[Remark]:
    """Return the requests for changes of the task and the replies of these runs' agents, in order."""
    reviews = change_requests_of(task).select_related("author").prefetch_related("threads__comments")
    remarks = [Remark(f"review-{one.pk}", one.sent_at, review=one) for one in reviews if one.sent_at]
    if runs:
        replies = ThreadComment.objects.filter(run__in=runs).select_related("thread", "run__step")
        remarks += [Remark(f"reply-{one.pk}", one.at, reply=one) for one in replies]
    return sorted(remarks, key=lambda one: one.at)

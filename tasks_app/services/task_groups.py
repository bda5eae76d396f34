"""Groups of tasks by whose turn it is: a person's, an agent's, a worker's, or nobody's any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, F, FloatField, Func, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Publication,
    PublicationState,
    Question,
    Review,
    ReviewVerdict,
    Run,
    Task,
    waits_for_others,
)
from tasks_app.models.task import EarlyEnd, TaskQuerySet
from tasks_app.permissions import Principal, projects_actable_by, projects_visible_to

#: How many of the tasks that ended last may be waiting for a review.
MOST_TO_REVIEW = 300
_LONGEST_WAITING = (F("asked_at").asc(nulls_last=True), "pk")
_NEWEST = ("-created_at", "-pk")
#: By phase first, as the index is: it then reads no more tasks than are shown.
_LAST_ENDED = ("-phase", "-ended_at", "-pk")


@dataclass(frozen=True)
class TaskGroup:
    """A group with the `order` of its tasks, of which lists show the `first`.

    `counted` follows the number of its tasks in the summary, with `counted_one` for a single task; the
    summary leaves a group without it out.
    """

    key: str
    title: str
    order: tuple[Any, ...] = _NEWEST
    first: int = 50
    counted: str = ""
    counted_one: str = ""
    folded: bool = False


ANSWER = TaskGroup(
    "answer", "Needs your answer", _LONGEST_WAITING, counted="need an answer", counted_one="needs an answer"
)
REVIEW = TaskGroup("review", "To review", _LAST_ENDED, counted="to review")
FAILED = TaskGroup("failed", "Failed or interrupted", _LAST_ENDED, counted="failed")
WORKING = TaskGroup("working", "Working", counted="working")
OTHERS = TaskGroup("others", "Waiting for others", _LONGEST_WAITING)
QUEUED = TaskGroup("queued", "Waiting for a worker", ("queued_at", "pk"), first=20, counted="queued")
NOT_STARTED = TaskGroup("not-started", "Not started", first=5)
FINISHED = TaskGroup("finished", "Finished", _LAST_ENDED, first=15, folded=True)

_FAILURES = (Phase.FAILED, Phase.INTERRUPTED)

#: In the order of the page: first those for which people are needed.
GROUPS = (ANSWER, REVIEW, FAILED, WORKING, OTHERS, QUEUED, NOT_STARTED, FINISHED)
SUMMARY = (WORKING, ANSWER, REVIEW, FAILED, QUEUED)


def tasks_in_group(tasks: TaskQuerySet, group: TaskGroup, viewer: Principal) -> TaskQuerySet:
    """Return those of `tasks` that are in the group. Each task is in exactly one."""
    if group in (ANSWER, OTHERS):
        actable = Q(project__in=projects_actable_by(viewer).order_by())
        own = actable & ~waits_for_others(viewer.user)
        return tasks.in_phases(Phase.WAITING_FOR_INPUT).filter(own if group == ANSWER else ~own)
    if group == REVIEW:
        return _to_review(tasks)
    if group == FAILED:
        return tasks.in_phases(*_FAILURES).filter(failure_dismissed=False)
    if group == WORKING:
        return tasks.in_phases(Phase.RUNNING)
    not_started = Q(phase=Phase.PENDING, queued_at=None)
    if group == QUEUED:
        return tasks.in_phases(Phase.PENDING, Phase.WAITING_FOR_RESET).exclude(not_started)
    if group == NOT_STARTED:
        return tasks.filter(not_started)
    dismissed = Q(phase__in=_FAILURES, failure_dismissed=True)
    ended = tasks.filter(Q(phase__in=(Phase.DONE, Phase.CANCELLED)) | dismissed)
    return ended.exclude(pk__in=_to_review(tasks).order_by().values("pk"))


def _to_review(tasks: TaskQuerySet) -> TaskQuerySet:
    """Return done tasks with a result that was neither published nor approved at its present commit.

    An approved one remains if its project can publish it. Only the last task of a sequence is reviewed: its
    result contains the others.
    """
    newest = tasks.filter(phase=Phase.DONE).order_by(*_LAST_ENDED).values("pk")[:MOST_TO_REVIEW]
    this = {"task": OuterRef("pk"), "commit": OuterRef("head_commit")}
    approved = Exists(Review.objects.deciding().filter(verdict=ReviewVerdict.APPROVE, **this))
    published = Exists(Publication.objects.filter(state=PublicationState.PUSHED, **this))
    continued = Exists(Task.objects.filter(sequence=OuterRef("sequence"), pk__gt=OuterRef("pk")))
    return (
        Task.objects.filter(pk__in=newest)
        .exclude(early_end=EarlyEnd.REHEARSED)
        .exclude(head_commit="")
        .exclude(head_commit=F("base_commit"))
        .exclude(published)
        .exclude(continued)
        .exclude(approved, project__publish_credential=None)
    )


def ids_in_order(tasks: TaskQuerySet, group: TaskGroup) -> QuerySet[Task, int]:
    """Return the ids of these tasks of the group in its order."""
    asked_at = Subquery(oldest_question().values("asked_at")[:1])
    return tasks.annotate(asked_at=asked_at).order_by(*group.order).values_list("pk", flat=True)


def dollars_of(runs: QuerySet[Run]) -> Coalesce:
    """Return what the runs cost together, as an expression."""
    total = runs.order_by().annotate(total=Func("cost_usd", function="SUM")).values("total")
    return Coalesce(Subquery(total), 0.0, output_field=FloatField())


def runs_of_today(viewer: Principal) -> QuerySet[Run]:
    """Return the runs that began today, in the viewer's time zone."""
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    runs = Run.objects.filter(started_at__gte=midnight)
    if viewer.is_site_admin:
        return runs
    return runs.filter(step__task__project__in=projects_visible_to(viewer).order_by())


def oldest_question() -> QuerySet[Question]:
    """Return the oldest open question of a task."""
    return Question.objects.open().filter(task=OuterRef("pk")).order_by("asked_at", "pk")

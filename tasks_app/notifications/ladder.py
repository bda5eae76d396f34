"""Climb the ladders of open questions: each rung is done once, with one message to each (SPEC Q3, Q5)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from tasks_app.core.ladder import ENDINGS, RungAction
from tasks_app.engine.crashpoints import crash_point
from tasks_app.models import Delivery, DeliveryState, EventType, Rung, RungOutcome
from tasks_app.notifications.message import rung_headline, step_of
from tasks_app.notifications.notices import NewEvent, create_all
from tasks_app.services.questions.ladder import do_rung, make_ladders, note_unreached, people_asked

logger = logging.getLogger(__name__)

_AT_ONCE = 100
_RELATED = ("question__task__project", "question__task__created_by", "question__run")


def climb_ladders(now: datetime) -> int:
    """Make the ladders of new questions and do every rung that is due; return how many rungs that were.

    Several workers may do so at the same time, and one may die at any point: a rung and its messages are one
    transaction, and the next round goes on.
    """
    make_ladders(now)
    crash_point("ladders-made")
    for rung, failure in _unreached():
        note_unreached(rung, failure, now)
        crash_point("unreached-noted")
    due = Rung.objects.upcoming().filter(due__lte=now).select_related(*_RELATED)
    done = 0
    for rung in due.order_by("due", "question_id", "position")[:_AT_ONCE]:
        try:
            done += _climb(rung, now)
        except Exception:
            logger.exception("%s failed; it is tried again", rung)
        crash_point("rung-done")
    return done


@transaction.atomic
def _climb(rung: Rung, now: datetime) -> bool:
    if not do_rung(rung, now):
        return False
    crash_point("rung-taken")
    if rung.outcome == RungOutcome.LEFT:  # who is asked knows already
        return True
    question = rung.question
    told = [user.pk for user in people_asked(question)]  # after the rung: everybody, if it says so
    if rung.action in ENDINGS and question.task.created_by_id:
        told.append(question.task.created_by_id)
    event = NewEvent(
        question.task,
        EventType.UNANSWERED if rung.action in ENDINGS else EventType.QUESTION,
        rung_headline(rung),
        by=None,
        step=step_of(question.task)[:100],
        question_kind=question.kind,
        rung=rung,
        only=frozenset(told),
        tells_project=rung.action == RungAction.EVERYBODY or not question.asked.current().exists(),
    )
    create_all(event, now)
    crash_point("rung-told")
    return True


def _unreached() -> Iterator[tuple[Rung, str]]:
    """Yield the last done rungs of which every message failed for good, with the reasons.

    Who only reads notices in the portal gets no message that could fail.
    """
    last: dict[int, int] = {}
    upcoming = Rung.objects.upcoming().order_by("position")
    for question, position in upcoming.values_list("question", "position"):
        last.setdefault(question, position - 1)
    done = Rung.objects.filter(question__in=last, outcome=RungOutcome.DONE).select_related("question")
    for rung in done:
        if rung.position != last[rung.question_id]:
            continue
        told = Q(rung=rung)
        if rung.action == RungAction.ASK:
            told = Q(
                transition__task=rung.question.task_id,
                transition__at__gte=rung.question.asked_at,
                event_type=EventType.QUESTION,
            )
        deliveries = list(Delivery.objects.filter(told).exclude(state=DeliveryState.DROPPED))
        if deliveries and all(one.state == DeliveryState.FAILED for one in deliveries):
            reasons = dict.fromkeys(f"{one.get_medium_display()}: {one.error}" for one in deliveries)
            yield rung, " ".join(reasons)

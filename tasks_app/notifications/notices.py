"""Turning what happened into notices for the page and deliveries to places outside."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tasks_app.models import Change, ChangeKind, Delivery, Medium, Notice, Occasion, Target, Transition, User
from tasks_app.models.transition import ANNOUNCED
from tasks_app.notifications.message import headline_of, is_over, occasion_of, step_of
from tasks_app.notifications.recipients import Listener, listeners
from tasks_app.notifications.timing import when_due

logger = logging.getLogger(__name__)

#: What happened longer ago is not told any more: so an upgrade, or a worker after a week, floods nobody.
FRESH = timedelta(days=1)
_AT_A_TIME = 100


def announce() -> int:
    """Tell everything that was not told yet; how many occasions.

    Each is marked in the transaction that writes its notices and deliveries, by a conditional UPDATE: of
    several announcers one wins, and a crash leaves either everything or nothing.
    """
    waiting = Transition.objects.filter(step=None, announced_at=None, target__in=ANNOUNCED)
    fresh = waiting.filter(at__gt=timezone.now() - FRESH).order_by("at", "pk")
    return sum(_announced(number) for number in list(fresh.values_list("pk", flat=True)[:_AT_A_TIME]))


def _announced(number: int) -> bool:
    """Whether this call told it. One that cannot be told must not hold up the others."""
    try:
        return _announce(number)
    except Exception:
        logger.exception("transition %s could not be announced; it is tried again", number)
        return False


@transaction.atomic
def _announce(number: int) -> bool:
    now = timezone.now()
    if not Transition.objects.filter(pk=number, announced_at=None).update(announced_at=now):
        return False
    related = ("task__project", "task__created_by", "task__sequence")
    happened = Transition.objects.select_related(*related).get(pk=number)
    Notice.objects.filter(task=happened.task_id, read_at=None).update(read_at=now)
    if not is_over(happened):
        _tell(happened, now)
    return True


def _tell(happened: Transition, now: datetime) -> None:
    occasion = occasion_of(happened)
    people = listeners(happened.task, but=happened.actor_id)
    notices = Notice.objects.bulk_create(_notices(happened, occasion, people))
    to_people, to_project = _to_people(happened, occasion, people, now), _to_project(happened, occasion, now)
    Delivery.objects.bulk_create([*to_people, *to_project])
    if notices:
        Change.objects.create(task_id=happened.task_id, kind=ChangeKind.NOTICE)


def _notices(happened: Transition, occasion: Occasion, people: Iterable[Listener]) -> list[Notice]:
    told = [one.user for one in people if one.wants(occasion, Medium.PAGE, happened.task)]
    if not told:
        return []
    about = {
        "task": happened.task,
        "transition": happened,
        "occasion": occasion,
        "step": step_of(happened.task)[:100],
        "headline": headline_of(happened),
    }
    return [Notice(user=user, **about) for user in told]


def _to_people(
    happened: Transition, occasion: Occasion, people: Iterable[Listener], now: datetime
) -> Iterator[Delivery]:
    for one in people:
        if settings.SENDS_EMAIL and one.user.email and one.wants(occasion, Medium.EMAIL, happened.task):
            due = when_due(now, one.preferences, digest=True)
            yield Delivery(
                transition=happened, occasion=occasion, medium=Medium.EMAIL, user=one.user, due_at=due
            )
        chat = _chat_of(one.user)
        if chat and one.wants(occasion, Medium.CHAT, happened.task):
            due = when_due(now, one.preferences, digest=False)
            yield Delivery(
                transition=happened, occasion=occasion, medium=Medium.CHAT, target=chat, due_at=due
            )


def _chat_of(user: User) -> Target | None:
    try:
        return user.chat_target
    except Target.DoesNotExist:
        return None


def _to_project(happened: Transition, occasion: Occasion, now: datetime) -> Iterator[Delivery]:
    for target in Target.objects.filter(project=happened.task.project_id, active=True):
        if occasion in target.occasions:
            yield Delivery(
                transition=happened, occasion=occasion, medium=target.medium, target=target, due_at=now
            )

"""Turn transitions into notices in the portal and deliveries by other media."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tasks_app.models import Change, ChangeKind, Delivery, EventType, Medium, Notice, Target, Transition, User
from tasks_app.models.transition import ANNOUNCED
from tasks_app.notifications.message import event_type_of, headline_of, is_over, step_of
from tasks_app.notifications.recipients import Recipient, recipients_of
from tasks_app.notifications.timing import when_due

logger = logging.getLogger(__name__)

#: Older transitions make no notifications, so that an upgrade or a long downtime floods nobody.
MAX_AGE = timedelta(days=1)
_BATCH_SIZE = 100


def create_notifications() -> int:
    """Create notices and deliveries of all new transitions; return the number of transitions.

    Each transition is marked by a conditional UPDATE in the same transaction: if several workers try, one
    wins, and a crash leaves either everything or nothing.
    """
    waiting = Transition.objects.filter(step=None, announced_at=None, target__in=ANNOUNCED)
    fresh = waiting.filter(at__gt=timezone.now() - MAX_AGE).order_by("at", "pk")
    return sum(_try_announce(pk) for pk in list(fresh.values_list("pk", flat=True)[:_BATCH_SIZE]))


def _try_announce(transition_id: int) -> bool:
    """Return whether this call announced it. An error must not stop the other transitions."""
    try:
        return _announce(transition_id)
    except Exception:
        logger.exception("transition %s could not be announced; it is tried again", transition_id)
        return False


@transaction.atomic
def _announce(transition_id: int) -> bool:
    now = timezone.now()
    if not Transition.objects.filter(pk=transition_id, announced_at=None).update(announced_at=now):
        return False
    related = ("task__project", "task__created_by", "task__sequence")
    transition = Transition.objects.select_related(*related).get(pk=transition_id)
    Notice.objects.filter(task=transition.task_id, read_at=None).update(read_at=now)
    if not is_over(transition):
        _create_all(transition, now)
    return True


def _create_all(transition: Transition, now: datetime) -> None:
    event_type = event_type_of(transition)
    recipients = recipients_of(transition.task, except_user=transition.actor_id)
    notices = Notice.objects.bulk_create(_notices(transition, event_type, recipients))
    personal, of_project = (
        _personal_deliveries(transition, event_type, recipients, now),
        _project_deliveries(transition, event_type, now),
    )
    Delivery.objects.bulk_create([*personal, *of_project])
    if notices:
        Change.objects.create(task_id=transition.task_id, kind=ChangeKind.NOTICE)


def _notices(transition: Transition, event_type: EventType, recipients: Iterable[Recipient]) -> list[Notice]:
    users = [one.user for one in recipients if one.wants(event_type, Medium.PAGE, transition.task)]
    if not users:
        return []
    about = {
        "task": transition.task,
        "transition": transition,
        "event_type": event_type,
        "step": step_of(transition.task)[:100],
        "headline": headline_of(transition),
    }
    return [Notice(user=user, **about) for user in users]


def _personal_deliveries(
    transition: Transition, event_type: EventType, recipients: Iterable[Recipient], now: datetime
) -> Iterator[Delivery]:
    for one in recipients:
        if settings.SENDS_EMAIL and one.user.email and one.wants(event_type, Medium.EMAIL, transition.task):
            due = when_due(now, one.preferences, digest=True)
            yield Delivery(
                transition=transition, event_type=event_type, medium=Medium.EMAIL, user=one.user, due_at=due
            )
        chat = _personal_chat(one.user)
        if chat and one.wants(event_type, Medium.CHAT, transition.task):
            due = when_due(now, one.preferences, digest=False)
            yield Delivery(
                transition=transition, event_type=event_type, medium=Medium.CHAT, target=chat, due_at=due
            )


def _personal_chat(user: User) -> Target | None:
    try:
        return user.chat_target
    except Target.DoesNotExist:
        return None


def _project_deliveries(transition: Transition, event_type: EventType, now: datetime) -> Iterator[Delivery]:
    for target in Target.objects.filter(project=transition.task.project_id, active=True):
        if event_type in target.event_types:
            yield Delivery(
                transition=transition, event_type=event_type, medium=target.medium, target=target, due_at=now
            )

"""Turn what happened to tasks and their results into notices in the portal and deliveries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Change,
    ChangeKind,
    Delivery,
    EventType,
    Medium,
    Notice,
    Publication,
    PushSubscription,
    Review,
    Target,
    Task,
    ThreadComment,
    Transition,
)
from tasks_app.models.transition import ANNOUNCED
from tasks_app.notifications.message import (
    event_type_of,
    headline_of,
    is_over,
    publication_headline,
    reply_headline,
    review_headline,
    step_of,
)
from tasks_app.notifications.preferences import Recipient, recipients_of, when_due
from tasks_app.notifications.web_push import PUSHED

logger = logging.getLogger(__name__)

#: Older ones make no notifications, so that an upgrade or a long downtime floods nobody.
MAX_AGE = timedelta(days=1)
_BATCH_SIZE = 100


@dataclass(frozen=True)
class _Event:
    """An announced event: a `transition` of a task, or a `review`, failed `publication` or `reply`.

    The user `by` caused it and gets no notification. `concerns`: a user whose task it is as well.
    """

    task: Task
    event_type: EventType
    headline: str
    by: int | None
    step: str = ""
    question_kind: str = ""
    transition: Transition | None = None
    review: Review | None = None
    publication: Publication | None = None
    reply: ThreadComment | None = None
    concerns: int | None = None

    def delivery(self, **to: Any) -> Delivery:
        return Delivery(**self.origin, event_type=self.event_type, **to)

    @property
    def origin(self) -> dict[str, Any]:
        names = ("transition", "review", "publication", "reply")
        return {name: getattr(self, name) for name in names}


def create_notifications() -> int:
    """Create notices and deliveries of all new events; return how many of these there were.

    Each is marked by a conditional UPDATE in the same transaction: if several workers try, one wins, and a
    crash leaves either everything or nothing.
    """
    since = timezone.now() - MAX_AGE
    waiting = Transition.objects.filter(step=None, announced_at=None, target__in=ANNOUNCED, at__gt=since)
    # While the worker still holds the task, a decision may answer what its agent has asked.
    held = Q(task__project__overrides__apply_decisions=True, task__lease_expires__gt=Now())
    waiting = waiting.exclude(Q(target=Phase.WAITING_FOR_INPUT) & held)
    transitions = list(waiting.order_by("at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    sent = Review.objects.filter(announced_at=None, sent_at__gt=since)
    reviews = list(sent.order_by("sent_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    failed = Publication.objects.failed().filter(announced_at=None, ended_at__gt=since)
    publications = list(failed.order_by("ended_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    written = ThreadComment.objects.filter(announce_at__lte=timezone.now())
    replies = list(written.order_by("announce_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    announced = sum(_try_announce(_announce_transition, pk) for pk in transitions)
    announced += sum(_try_announce(_announce_review, pk) for pk in reviews)
    announced += sum(_try_announce(_announce_publication, pk) for pk in publications)
    return announced + sum(_try_announce(_announce_replies, pk) for pk in replies)


def _try_announce(announce: Callable[[int], bool], row_id: int) -> bool:
    """Return whether this call announced it. An error must not stop the other ones."""
    try:
        return announce(row_id)
    except Exception:
        logger.exception("%s of %s failed; it is tried again", announce.__name__, row_id)
        return False


_RELATED = ("task__project", "task__created_by", "task__sequence")


@transaction.atomic
def _announce_transition(transition_id: int) -> bool:
    now = timezone.now()
    if not Transition.objects.filter(pk=transition_id, announced_at=None).update(announced_at=now):
        return False
    transition = Transition.objects.select_related(*_RELATED).get(pk=transition_id)
    Notice.objects.filter(task=transition.task_id, read_at=None).update(read_at=now)
    if not is_over(transition):
        task, event_type, question, kind = transition.task, event_type_of(transition), None, ""
        if event_type == EventType.QUESTION and (question := task.questions.open().first()):
            kind = question.kind
        headline, step = headline_of(transition, question), step_of(task)[:100]
        event = _Event(task, event_type, headline, transition.actor_id, step, kind, transition=transition)
        _create_all(event, now)
    return True


@transaction.atomic
def _announce_review(review_id: int) -> bool:
    now = timezone.now()
    if not Review.objects.filter(pk=review_id, announced_at=None).update(announced_at=now):
        return False
    review = Review.objects.select_related(*_RELATED, "author").get(pk=review_id)
    event_type, headline = EventType.REVIEWED, review_headline(review)
    _create_all(_Event(review.task, event_type, headline, review.author_id, review=review), now)
    return True


@transaction.atomic
def _announce_publication(publication_id: int) -> bool:
    now = timezone.now()
    if not Publication.objects.filter(pk=publication_id, announced_at=None).update(announced_at=now):
        return False
    publication = Publication.objects.select_related(*_RELATED, "by").get(pk=publication_id)
    event_type, headline = EventType.NOT_PUBLISHED, publication_headline(publication)
    event = _Event(
        publication.task, event_type, headline, by=None, publication=publication, concerns=publication.by_id
    )
    _create_all(event, now)
    return True


@transaction.atomic
def _announce_replies(comment_id: int) -> bool:
    """Announce a reply, together with all others that its author wrote about the same result meanwhile."""
    waiting = ThreadComment.objects.filter(announce_at__isnull=False)
    if not waiting.filter(pk=comment_id).update(announce_at=None):
        return False
    related = ("author", *(f"thread__{one}" for one in _RELATED))
    reply = ThreadComment.objects.select_related(*related).get(pk=comment_id)
    task, now = reply.thread.task, timezone.now()
    others = waiting.filter(author=reply.author_id, thread__task=task.pk).update(announce_at=None)
    if reply.at > now - MAX_AGE:
        headline = reply_headline(reply, 1 + others)
        _create_all(_Event(task, EventType.REVIEWED, headline, reply.author_id, reply=reply), now)
    return True


def _create_all(event: _Event, now: datetime) -> None:
    recipients = recipients_of(event.task, except_user=event.by, concerns=event.concerns)
    notices = Notice.objects.bulk_create(_notices(event, recipients))
    deliveries = list(_personal_deliveries(event, recipients, now))
    for target in Target.objects.filter(project=event.task.project_id, active=True):
        if event.event_type in target.event_types:
            deliveries.append(event.delivery(medium=target.medium, target=target, due_at=now))
    Delivery.objects.bulk_create(deliveries)
    if notices:
        Change.objects.create(task=event.task, kind=ChangeKind.NOTICE)


def _notices(event: _Event, recipients: Iterable[Recipient]) -> list[Notice]:
    about = {
        "task": event.task,
        **event.origin,
        "event_type": event.event_type,
        "step": event.step,
        "question_kind": event.question_kind,
        "headline": event.headline,
    }
    users = [one.user for one in recipients if one.wants(event.event_type, Medium.PAGE, event.task)]
    return [Notice(user=user, **about) for user in users]


def _personal_deliveries(event: _Event, recipients: Iterable[Recipient], now: datetime) -> Iterator[Delivery]:
    for one in recipients:
        if settings.SENDS_EMAIL and one.user.email and one.wants(event.event_type, Medium.EMAIL, event.task):
            due = when_due(now, one.preferences, digest=True)
            yield event.delivery(medium=Medium.EMAIL, user=one.user, due_at=due)
        has_chat = hasattr(one.user, "chat_target")
        if has_chat and one.wants(event.event_type, Medium.CHAT, event.task):
            due = when_due(now, one.preferences, digest=False)
            yield event.delivery(medium=Medium.CHAT, target=one.user.chat_target, due_at=due)
    yield from _pushes(event, recipients, now)


def _pushes(event: _Event, recipients: Iterable[Recipient], now: datetime) -> Iterator[Delivery]:
    """Push to the browsers of recipients who want notices in the page."""
    if event.event_type not in PUSHED:
        return
    due = {
        one.user.pk: when_due(now, one.preferences, digest=False)
        for one in recipients
        if one.wants(event.event_type, Medium.PAGE, event.task)
    }
    for browser in PushSubscription.objects.filter(user__in=due):
        yield event.delivery(medium=Medium.PUSH, browser=browser, due_at=due[browser.user_id])

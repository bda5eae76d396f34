"""Turn what happened to tasks and their results into notices in the portal and deliveries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.working_hours import next_working
from tasks_app.models import (
    Asked,
    Change,
    ChangeKind,
    Delivery,
    EventType,
    Medium,
    Notice,
    Publication,
    PushSubscription,
    Question,
    Review,
    Rung,
    Target,
    Task,
    ThreadComment,
    Transition,
)
from tasks_app.models.transition import ANNOUNCED
from tasks_app.notifications.message import (
    asked_headline,
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
from tasks_app.services.questions.routing import route_due_questions
from tasks_app.services.working_hours import schedule_of

logger = logging.getLogger(__name__)

#: Older ones make no notifications, so that an upgrade or a long downtime floods nobody.
MAX_AGE = timedelta(days=1)
_BATCH_SIZE = 100


@dataclass(frozen=True)
class NewEvent:
    """An announced event: a `transition` of a task, a `review`, failed `publication`, `reply` or `rung`; or
    that somebody is `asked` by name, or no longer.

    The user `by` caused it and gets no notification. `concerns`: a user whose task it is as well. `only`: the
    users whom it is for, each of whom it concerns; None for all who see the task. `questions`: those that are
    announced.
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
    rung: Rung | None = None
    asked: Asked | None = None
    questions: Sequence[Question] | None = None
    concerns: int | None = None
    only: frozenset[int] | None = None
    tells_project: bool = True

    def delivery(self, **to: Any) -> Delivery:
        return Delivery(**self.origin, event_type=self.event_type, **to)

    @property
    def origin(self) -> dict[str, Any]:
        names = ("transition", "review", "publication", "reply", "rung", "asked")
        return {name: getattr(self, name) for name in names}


def create_notifications() -> int:
    """Create notices and deliveries of all new events; return how many of these there were.

    Each is marked by a conditional UPDATE in the same transaction: if several workers try, one wins, and a
    crash leaves either everything or nothing.
    """
    since = timezone.now() - MAX_AGE
    waiting = Transition.objects.filter(step=None, announced_at=None, target__in=ANNOUNCED, at__gt=since)
    # While the worker still holds the task, a decision may answer what its agent has asked, and the changed
    # files by which it is routed are not recorded yet.
    waiting = waiting.exclude(target=Phase.WAITING_FOR_INPUT, task__lease_expires__gt=Now())
    transitions = list(waiting.order_by("at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    route_due_questions()  # after that list, so that no question is announced before it is routed
    sent = Review.objects.filter(announced_at=None, sent_at__gt=since)
    reviews = list(sent.order_by("sent_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    failed = Publication.objects.failed().filter(announced_at=None, ended_at__gt=since)
    publications = list(failed.order_by("ended_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    written = ThreadComment.objects.filter(announce_at__lte=timezone.now())
    replies = list(written.order_by("announce_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    put = Asked.objects.filter(announce_at__lte=timezone.now())
    asked = list(put.order_by("announce_at", "pk").values_list("pk", flat=True)[:_BATCH_SIZE])
    announced = sum(_try_announce(_announce_transition, pk) for pk in transitions)
    announced += sum(_try_announce(_announce_asked, pk) for pk in asked)
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
    passed = Notice.objects.filter(task=transition.task_id, read_at=None)
    passed.exclude(event_type=EventType.TOKEN_SEEN).update(read_at=now)
    if not is_over(transition):
        task, event_type, question, kind = transition.task, event_type_of(transition), None, ""
        questions: list[Question] | None = None
        if event_type == EventType.QUESTION:
            questions = list(task.questions.open().prefetch_related("asked"))
            question = questions[0]
            kind = question.kind
        headline, step = headline_of(transition, question), step_of(task)[:100]
        event = NewEvent(
            task, event_type, headline, transition.actor_id, step, kind, transition=transition,
            questions=questions,
        )  # fmt: skip
        create_all(event, now)
    return True


@transaction.atomic
def _announce_asked(asked_id: int) -> bool:
    """Tell somebody that they are asked by name, or no longer."""
    now = timezone.now()
    if not Asked.objects.filter(pk=asked_id, announce_at__lte=now).update(announce_at=None):
        return False
    related = ("user", "by", *(f"question__{one}" for one in _RELATED))
    asked = Asked.objects.select_related(*related).get(pk=asked_id)
    question = asked.question
    Notice.objects.filter(user=asked.user, asked__question=question, read_at=None).update(read_at=now)
    if question.is_open:
        event = NewEvent(
            question.task, EventType.QUESTION, asked_headline(asked), None, question.step.name[:100],
            question.kind, asked=asked, only=frozenset({asked.user_id}), tells_project=False,
        )  # fmt: skip
        create_all(event, now)
    return True


@transaction.atomic
def _announce_review(review_id: int) -> bool:
    now = timezone.now()
    if not Review.objects.filter(pk=review_id, announced_at=None).update(announced_at=now):
        return False
    review = Review.objects.select_related(*_RELATED, "author").get(pk=review_id)
    event_type, headline = EventType.REVIEWED, review_headline(review)
    create_all(NewEvent(review.task, event_type, headline, review.author_id, review=review), now)
    return True


@transaction.atomic
def _announce_publication(publication_id: int) -> bool:
    now = timezone.now()
    if not Publication.objects.filter(pk=publication_id, announced_at=None).update(announced_at=now):
        return False
    publication = Publication.objects.select_related(*_RELATED, "by").get(pk=publication_id)
    event_type, headline = EventType.NOT_PUBLISHED, publication_headline(publication)
    event = NewEvent(
        publication.task, event_type, headline, by=None, publication=publication, concerns=publication.by_id
    )
    create_all(event, now)
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
        create_all(NewEvent(task, EventType.REVIEWED, headline, reply.author_id, reply=reply), now)
    return True


def create_all(event: NewEvent, now: datetime) -> None:
    recipients = recipients_of(
        event.task, except_user=event.by, concerns=event.concerns, questions=event.questions
    )
    if event.only is not None:
        recipients = [replace(one, is_concerned=True) for one in recipients if one.user.pk in event.only]
    about = {
        "task": event.task,
        **event.origin,
        "event_type": event.event_type,
        "step": event.step,
        "question_kind": event.question_kind,
        "headline": event.headline,
    }
    users = [one.user for one in recipients if one.wants(event.event_type, Medium.PAGE)]
    notices = Notice.objects.bulk_create([Notice(user=user, **about) for user in users])
    deliveries: list[Delivery] = []
    if event.asked is None or event.asked.ended_at is None:  # that it ended is told in the page only
        deliveries += _personal_deliveries(event, recipients, now)
    for target in Target.objects.filter(project=event.task.project_id, active=True):
        if event.tells_project and event.event_type in target.event_types:
            deliveries.append(event.delivery(medium=target.medium, target=target, due_at=now))
    Delivery.objects.bulk_create(deliveries)
    if notices:
        Change.objects.create(task=event.task, kind=ChangeKind.NOTICE)


def _personal_deliveries(
    event: NewEvent, recipients: Iterable[Recipient], now: datetime
) -> Iterator[Delivery]:
    for one in recipients:
        if settings.SENDS_EMAIL and one.user.email and one.wants(event.event_type, Medium.EMAIL):
            due = _when_due(event, one, now, digest=True)
            yield event.delivery(medium=Medium.EMAIL, user=one.user, due_at=due)
        has_chat = hasattr(one.user, "chat_target")
        if has_chat and one.wants(event.event_type, Medium.CHAT):
            due = _when_due(event, one, now, digest=False)
            yield event.delivery(medium=Medium.CHAT, target=one.user.chat_target, due_at=due)
    if event.event_type not in PUSHED:
        return
    # To the browsers of those who want notices in the page.
    times = {
        one.user.pk: _when_due(event, one, now, digest=False)
        for one in recipients
        if one.wants(event.event_type, Medium.PAGE)
    }
    for browser in PushSubscription.objects.filter(user__in=times):
        yield event.delivery(medium=Medium.PUSH, browser=browser, due_at=times[browser.user_id])


def _when_due(event: NewEvent, recipient: Recipient, now: datetime, *, digest: bool) -> datetime:
    """Return when it is sent: of a rung not before the recipient works, unless it may disturb at any hour."""
    if event.rung and event.rung.at_any_hour:
        return now
    if event.rung:
        now = next_working(now, schedule_of(recipient.user))
    return when_due(now, recipient.preferences, digest=digest)

"""Sending what is due, and noting what became of it. Done by the worker only, outside any transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from tasks_app.core.errors import CatHerderError
from tasks_app.models import Delivery, DeliveryState, Medium, Occasion, Target
from tasks_app.notifications import chat, mail, webhook
from tasks_app.notifications.encryption import unseal
from tasks_app.notifications.errors import NotSent
from tasks_app.notifications.message import is_over, message_of, occasion_of
from tasks_app.notifications.recipients import preferences_of
from tasks_app.notifications.timing import MOST_ATTEMPTS, after_quiet_hours, wait_before
from tasks_app.permissions import Principal, may_see

logger = logging.getLogger(__name__)

#: For how long somebody who sends has a delivery: longer than any medium may take.
TAKEN_SECONDS = 120.0
_IN_ONE_MAIL = 50


def deliver(stop: Callable[[], bool] = lambda: False) -> int:
    """Send all that is due; how many were taken. Several may do so at the same time."""
    taken = 0
    while not stop() and (batch := _take_next()):
        _handle(batch)
        taken += len(batch)
    return taken


def _take_next() -> list[Delivery]:
    """What is due first, before what failed already; with an e-mail all others of the same person."""
    for first in Delivery.objects.due().order_by("attempts", "due_at", "pk")[:20]:
        ids = [first.pk]
        if first.medium == Medium.EMAIL:
            mails = Delivery.objects.due().filter(medium=Medium.EMAIL, user=first.user_id)
            ids = list(mails.order_by("due_at", "pk").values_list("pk", flat=True)[:_IN_ONE_MAIL])
        if batch := Delivery.objects.take(ids, seconds=TAKEN_SECONDS):
            return batch
    return []


def _handle(batch: Sequence[Delivery]) -> None:
    wanted = []
    for delivery in batch:
        if reason := why_not(delivery):
            _note([delivery], state=DeliveryState.DROPPED, said=reason)
        elif quiet_until := _quiet_until(delivery):
            _put_off(delivery, quiet_until, attempts=delivery.attempts - 1)
        else:
            wanted.append(delivery)
    if wanted:
        _attempt(wanted)


def _quiet_until(delivery: Delivery) -> datetime | None:
    """When the quiet hours of its person end, if these are on: it may come late, or a second time."""
    if not delivery.recipient or delivery.occasion == Occasion.TEST:
        return None
    now = timezone.now()
    until = after_quiet_hours(now, preferences_of(delivery.recipient))
    return until if until > now else None


def _attempt(batch: Sequence[Delivery]) -> None:
    begun = time.monotonic()
    try:
        status = _send(batch)
    except NotSent as error:
        _note_failure(batch, error, _since(begun))
    except Exception as error:
        logger.exception("delivery %s could not be sent", batch[0].pk)
        _note_failure(batch, NotSent(f"It could not be sent ({type(error).__name__})."), _since(begun))
    else:
        facts = {"status": status, "milliseconds": _since(begun), "sent_at": timezone.now(), "said": ""}
        _note(batch, state=DeliveryState.SENT, **facts)


def _send(batch: Sequence[Delivery]) -> int | None:
    """Only e-mails come in batches. Raises NotSent."""
    messages = [message_of(delivery) for delivery in batch]
    delivery, message = batch[0], messages[0]
    if delivery.user:
        mail.send(delivery.user, messages)
        return None
    assert delivery.target  # noqa: S101 (a constraint of the table)
    listed = settings.ENVIRONMENT.webhook_allow
    try:
        address, secret = _unsealed(delivery.target)
    except CatHerderError as error:
        raise NotSent(str(error), permanent=True) from None
    if delivery.medium == Medium.CHAT:
        return chat.send(address, message, listed=listed)
    key, now = str(delivery.key), int(time.time())
    return webhook.post(address, message.as_json(), secret=secret, key=key, at=now, listed=listed)


def _unsealed(target: Target) -> tuple[str, str]:
    return unseal(target.sealed_address), unseal(target.sealed_secret) if target.sealed_secret else ""


def why_not(delivery: Delivery) -> str:
    """Why it is not to be sent any more, by the rows as they are now; empty if it is."""
    if delivery.target and not delivery.target.active:
        return "This webhook or chat was switched off."
    happened, person = delivery.transition, delivery.recipient
    if person and not person.is_active:
        return f"The account of {person.shown_name} is deactivated."
    if delivery.user and not delivery.user.email:
        return f"{delivery.user.shown_name} no longer has an e-mail address."
    if happened is None:
        return ""
    if person and not may_see(Principal.unrestricted(person), happened.task.project):
        return f"{person.shown_name} no longer has a role in the project."
    if delivery.occasion == Occasion.FAILED != occasion_of(happened):
        return "The sequence was resumed meanwhile."
    return "The question was answered meanwhile." if is_over(happened) else ""


def _note_failure(batch: Sequence[Delivery], error: NotSent, milliseconds: int) -> None:
    """What was to come in one mail is due at one time again, or it would come in as many."""
    due = timezone.now() + wait_before(max(delivery.attempts for delivery in batch))
    for delivery in batch:
        facts = {"said": str(error)[:500], "status": error.status, "milliseconds": milliseconds}
        if error.permanent or delivery.attempts >= MOST_ATTEMPTS:
            _note([delivery], state=DeliveryState.FAILED, **facts)
        else:
            _put_off(delivery, due, **facts)


def _put_off(delivery: Delivery, due: datetime, **facts: object) -> None:
    """Free for whoever sends it then."""
    _note([delivery], due_at=due, token=None, taken_until=None, **facts)


def _note(batch: Sequence[Delivery], **facts: object) -> None:
    """Only by who has it: somebody else may have it since, because this took too long."""
    for delivery in batch:
        mine = Delivery.objects.filter(pk=delivery.pk, token=delivery.token)
        mine.filter(state=DeliveryState.WAITING).update(**facts)


def _since(begun: float) -> int:
    return int((time.monotonic() - begun) * 1000)

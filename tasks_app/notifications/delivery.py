"""Send deliveries that are due and store the outcome; in the worker only, outside transactions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from tasks_app.core.allowed_networks import Network
from tasks_app.core.errors import CatHerderError
from tasks_app.encryption import CannotDecrypt, decrypt
from tasks_app.models import Delivery, DeliveryState, EventType, Medium, PushSubscription
from tasks_app.notifications import chat, mail, web_push, webhook
from tasks_app.notifications.browsers import browser_of
from tasks_app.notifications.errors import NotSent
from tasks_app.notifications.message import Message, event_type_of, is_over, message_of
from tasks_app.notifications.push_approvals import approval_for
from tasks_app.notifications.recipients import preferences_of
from tasks_app.notifications.timing import MAX_ATTEMPTS, after_quiet_hours, retry_delay
from tasks_app.permissions import Principal, may_see

logger = logging.getLogger(__name__)

#: How long a delivery is claimed for sending: longer than the timeout of any medium.
CLAIM_SECONDS = 120.0
_MAX_IN_ONE_MAIL = 50


def deliver(stop: Callable[[], bool] = lambda: False) -> int:
    """Send all due deliveries and return their number. Several threads may do this at the same time."""
    count = 0
    while not stop() and (batch := _claim_next()):
        _process(batch)
        count += len(batch)
    return count


def _claim_next() -> list[Delivery]:
    """Claim the next due delivery, failed ones last; with an e-mail, all others of the same user."""
    for first in Delivery.objects.due().order_by("attempts", "due_at", "pk")[:20]:
        ids = [first.pk]
        if first.medium == Medium.EMAIL:
            mails = Delivery.objects.due().filter(medium=Medium.EMAIL, user=first.user_id)
            ids = list(mails.order_by("due_at", "pk").values_list("pk", flat=True)[:_MAX_IN_ONE_MAIL])
        if batch := Delivery.objects.take(ids, seconds=CLAIM_SECONDS):
            return batch
    return []


def _process(batch: Sequence[Delivery]) -> None:
    to_send = []
    for delivery in batch:
        if reason := drop_reason(delivery):
            _update_if_held([delivery], state=DeliveryState.DROPPED, error=reason)
        elif quiet_until := _end_of_quiet_hours(delivery):
            _release_until(delivery, quiet_until, attempts=delivery.attempts - 1)
        else:
            to_send.append(delivery)
    if to_send:
        _attempt(to_send)


def _end_of_quiet_hours(delivery: Delivery) -> datetime | None:
    """Return the end of its recipient's current quiet hours, or None. Late and repeated ones wait too."""
    if not delivery.recipient or delivery.event_type == EventType.TEST:
        return None
    now = timezone.now()
    until = after_quiet_hours(now, preferences_of(delivery.recipient))
    return until if until > now else None


def _attempt(batch: Sequence[Delivery]) -> None:
    started = time.monotonic()
    try:
        status = _send_batch(batch)
    except NotSent as error:
        _save_failure(batch, error, _milliseconds_since(started))
    except Exception as error:
        logger.exception("delivery %s could not be sent", batch[0].pk)
        _save_failure(
            batch, NotSent(f"It could not be sent ({type(error).__name__})."), _milliseconds_since(started)
        )
    else:
        columns = {
            "status": status,
            "milliseconds": _milliseconds_since(started),
            "sent_at": timezone.now(),
            "error": "",
        }
        _update_if_held(batch, state=DeliveryState.SENT, **columns)


def _send_batch(batch: Sequence[Delivery]) -> int | None:
    """Send one delivery, or several e-mails together. Raises NotSent."""
    messages = [message_of(delivery) for delivery in batch]
    delivery, message = batch[0], messages[0]
    listed = settings.ENVIRONMENT.webhook_allow
    if delivery.user:
        mail.send(delivery.user, messages)
        return None
    if delivery.browser:
        return _push_to_browser(delivery.browser, message, listed)
    assert delivery.target  # noqa: S101 (a constraint of the table)
    try:
        url = decrypt(delivery.target.encrypted_url)
        secret = decrypt(delivery.target.encrypted_secret) if delivery.target.encrypted_secret else ""
    except CatHerderError as error:
        raise NotSent(str(error), permanent=True) from None
    if delivery.medium == Medium.CHAT:
        return chat.send(url, message, listed=listed)
    if delivery.medium != Medium.WEBHOOK:
        raise NotSent(f"the medium “{delivery.medium}” is unknown", permanent=True)
    key, now = str(delivery.key), int(time.time())
    return webhook.post(url, message.as_json(), secret=secret, key=key, at=now, listed=listed)


def _push_to_browser(subscription: PushSubscription, message: Message, listed: Iterable[Network]) -> int:
    """Push to a browser. One that has unsubscribed is forgotten, with its deliveries."""
    approval = approval_for(message, subscription.user)
    try:
        return web_push.send(browser_of(subscription), message, approval, listed=listed)
    except web_push.BrowserGone:
        subscription.delete()
        raise
    except CannotDecrypt as error:
        raise NotSent(str(error), permanent=True) from None


def drop_reason(delivery: Delivery) -> str:
    """Return why it should no longer be sent, according to the current rows, or ""."""
    if delivery.target and not delivery.target.active:
        return "This webhook or chat was switched off."
    transition, recipient = delivery.transition, delivery.recipient
    if recipient and not recipient.is_active:
        return f"The account of {recipient.shown_name} is deactivated."
    if delivery.user and not delivery.user.email:
        return f"{delivery.user.shown_name} no longer has an e-mail address."
    event = delivery.event
    if recipient and event and not may_see(Principal.unrestricted(recipient), event.task.project):
        return f"{recipient.shown_name} no longer has a role in the project."
    if transition is None:
        return ""
    if delivery.event_type == EventType.FAILED != event_type_of(transition):
        return "The sequence was resumed meanwhile."
    return "The question was answered meanwhile." if is_over(transition) else ""


def _save_failure(batch: Sequence[Delivery], error: NotSent, milliseconds: int) -> None:
    """Store a failure and retry all of the batch at the same time, so that it stays one e-mail."""
    due = timezone.now() + retry_delay(max(delivery.attempts for delivery in batch))
    for delivery in batch:
        columns = {"error": str(error)[:500], "status": error.status, "milliseconds": milliseconds}
        if error.permanent or delivery.attempts >= MAX_ATTEMPTS:
            _update_if_held([delivery], state=DeliveryState.FAILED, **columns)
        else:
            _release_until(delivery, due, **columns)


def _release_until(delivery: Delivery, due: datetime, **columns: object) -> None:
    """Release the delivery and make it due later."""
    _update_if_held([delivery], due_at=due, token=None, taken_until=None, **columns)


def _update_if_held(batch: Sequence[Delivery], **columns: object) -> None:
    """Update the rows unless another worker has claimed them, because sending took too long."""
    for delivery in batch:
        claimed = Delivery.objects.filter(pk=delivery.pk, token=delivery.token)
        claimed.filter(state=DeliveryState.WAITING).update(**columns)


def _milliseconds_since(started: float) -> int:
    return int((time.monotonic() - started) * 1000)

"""Deliveries that are due are sent in the worker, outside transactions, and the outcome is stored."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import close_old_connections, connection, transaction
from django.db.models.signals import post_save
from django.utils import timezone

from tasks_app.core.errors import CatHerderError
from tasks_app.core.ladder import ENDINGS
from tasks_app.encryption import CannotDecrypt, decrypt
from tasks_app.models import Delivery, DeliveryState, EventType, Medium, Notice, Rung, Transition
from tasks_app.notifications import chat, mail, web_push, webhook
from tasks_app.notifications.ladder import climb_ladders
from tasks_app.notifications.message import NotSent, event_type_of, is_over, message_of
from tasks_app.notifications.notices import create_notifications
from tasks_app.notifications.preferences import MAX_ATTEMPTS, after_quiet_hours, preferences_of, retry_delay
from tasks_app.notifications.web_push import approval_for, browser_of
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
    at_any_hour = delivery.rung is not None and delivery.rung.at_any_hour
    if not delivery.recipient or delivery.event_type == EventType.TEST or at_any_hour:
        return None
    now = timezone.now()
    until = after_quiet_hours(now, preferences_of(delivery.recipient))
    if until > now:
        return until
    return None


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
        approval = approval_for(message, delivery.browser.user)
        try:
            return web_push.send(browser_of(delivery.browser), message, approval, listed=listed)
        except web_push.BrowserGone:
            delivery.browser.delete()
            raise
        except CannotDecrypt as error:
            raise NotSent(str(error), permanent=True) from None
    assert delivery.target  # noqa: S101 (a constraint of the table)
    try:
        url = decrypt(delivery.target.encrypted_url)
        secret = delivery.target.encrypted_secret and decrypt(delivery.target.encrypted_secret)
    except CatHerderError as error:
        raise NotSent(str(error), permanent=True) from None
    if delivery.medium == Medium.CHAT:
        return chat.send(url, message, listed=listed)
    if delivery.medium != Medium.WEBHOOK:
        raise NotSent(f"the medium “{delivery.medium}” is unknown", permanent=True)
    key, now = str(delivery.key), int(time.time())
    return webhook.post(url, message.as_json(), secret=secret, key=key, at=now, listed=listed)


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
    if delivery.event_type == EventType.TOKEN_SEEN:  # their token, whoever's task it was
        return ""
    if recipient and event and not may_see(Principal.unrestricted(recipient), event.task.project):
        return f"{recipient.shown_name} no longer has a role in the project."
    if delivery.rung and _is_passed(delivery.rung):
        return "The question was answered or opened again meanwhile."
    if (asked := delivery.asked) and (asked.ended_at or not asked.question.is_open):
        return "The question is no longer asked of them."
    if transition is None:
        return ""
    if delivery.event_type == EventType.FAILED != event_type_of(transition):
        return "The sequence was resumed meanwhile."
    if is_over(transition):
        return "The question was answered meanwhile."
    return ""


def _is_passed(rung: Rung) -> bool:
    """Return whether its message no longer holds: of a question that it put to people, or that it ended."""
    if rung.action in ENDINGS:
        return not rung.question.is_unanswered or rung.question.taken_back_at is not None
    return not rung.question.is_open


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


# The worker's thread that creates notifications and sends deliveries.


#: Seconds between two rounds; transitions of this worker start a round at once.
POLL_SECONDS = 2.0
#: Number of sending threads: one slow receiver must not delay the others.
MAX_SENDERS = 4
#: Seconds that a round waits after a transition: in this process the task's next agent starts now.
STAND_BACK_SECONDS = 0.2
NOTICES_KEPT = timedelta(days=90)
DELIVERIES_KEPT = timedelta(days=30)
_PRUNE_SECONDS = 3600.0


class Dispatcher(threading.Thread):
    """Polls every POLL_SECONDS until stopped. Errors are logged, and the next round tries again.

    Each worker has one. It uses no jobs in the queue: agents may occupy all of a worker's slots for hours,
    and a round costs two indexed queries.
    """

    def __init__(self) -> None:
        super().__init__(name="dispatcher", daemon=True)
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._senders: list[threading.Thread] = []
        self._pruned = 0.0

    def run(self) -> None:
        post_save.connect(self._on_transition, sender=Transition, dispatch_uid="dispatcher")
        while not self._stopping.is_set():
            _log_errors(self._run_once)
            close_old_connections()
            if self._wake.wait(POLL_SECONDS):
                self._stopping.wait(STAND_BACK_SECONDS)
            self._wake.clear()
        post_save.disconnect(sender=Transition, dispatch_uid="dispatcher")
        connection.close()

    def stop(self) -> None:
        """Wait a moment for deliveries that are being sent; the next worker sends the rest."""
        self._stopping.set()
        self._wake.set()
        end = time.monotonic() + 3
        for thread in [self, *self._senders]:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    def _on_transition(self, **_: object) -> None:
        transaction.on_commit(self._wake.set)

    def _run_once(self) -> None:
        close_old_connections()
        create_notifications()
        climb_ladders(timezone.now())
        self._senders = [thread for thread in self._senders if thread.is_alive()]
        for _ in range(min(Delivery.objects.due()[:MAX_SENDERS].count(), MAX_SENDERS - len(self._senders))):
            thread = threading.Thread(target=self._deliver, name="dispatcher-sender", daemon=True)
            thread.start()
            self._senders.append(thread)
        if time.monotonic() - self._pruned > _PRUNE_SECONDS or not self._pruned:
            self._pruned = time.monotonic()
            Notice.objects.prune(NOTICES_KEPT)
            Delivery.objects.prune(DELIVERIES_KEPT)

    def _deliver(self) -> None:
        _log_errors(lambda: deliver(self._stopping.is_set))
        connection.close()


def _log_errors(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        logger.exception("notifications failed; the next round is in %s seconds", POLL_SECONDS)

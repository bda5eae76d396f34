"""The browsers of a user that get pushed notifications: subscribing, removing, trying."""

from __future__ import annotations

import json
from hashlib import sha256
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone

from tasks_app.encryption import Purpose, decrypt, encrypt
from tasks_app.history.audit import record
from tasks_app.models import Action, Delivery, EventType, Medium, PushSubscription, User
from tasks_app.notifications.web_push import Browser

#: Events that are pushed, to users who want to know of them in the page.
PUSHED = (EventType.QUESTION, EventType.FAILED)

#: More browsers of one user are removed, the oldest first: each would get a request for each notification.
MAX_BROWSERS = 20


def subscribe(user: User, browser: Browser, *, name: str) -> PushSubscription:
    """Store the browser, which may have been another user's before. Doing so twice is harmless."""
    digest = sha256(browser.endpoint.encode()).hexdigest()
    values = {
        "user": user,
        "encrypted": encrypt(json.dumps(vars(browser)), Purpose.PUSH),
        "browser": name[:60],
        "host": (urlsplit(browser.endpoint).hostname or "")[:255],
    }
    with transaction.atomic():
        known = PushSubscription.objects.filter(endpoint_digest=digest, user=user).exists()
        subscription, _ = PushSubscription.objects.update_or_create(endpoint_digest=digest, defaults=values)
        if not known:
            _record_change(user, added=subscription)
        for surplus in user.push_subscriptions.exclude(pk=subscription.pk)[MAX_BROWSERS - 1 :]:
            unsubscribe(surplus)
    return subscription


def unsubscribe(subscription: PushSubscription) -> None:
    with transaction.atomic():
        _record_change(subscription.user, removed=subscription)
        subscription.delete()


def send_test(subscription: PushSubscription) -> None:
    """Queue a test; the worker sends it."""
    Delivery.objects.create(
        event_type=EventType.TEST, medium=Medium.PUSH, browser=subscription, due_at=timezone.now()
    )


def browser_of(subscription: PushSubscription) -> Browser:
    """Return where to send to. Raises CannotDecrypt."""
    return Browser(**json.loads(decrypt(subscription.encrypted, Purpose.PUSH)))


def _record_change(user: User, **changed: PushSubscription) -> None:
    details = {name: [one.browser, one.host] for name, one in changed.items()}
    record(Action.NOTIFICATIONS_CHANGED, by=user, subject=user.shown_name, browser=details)

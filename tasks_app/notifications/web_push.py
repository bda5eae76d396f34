"""Notifications that are pushed to browsers: which ones, approving from one, and sending."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.core import signing
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.allowed_networks import Network
from tasks_app.core.errors import BadInput
from tasks_app.core.types import ALLOW_COMMAND
from tasks_app.encryption import Purpose, decrypt, encrypt
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Delivery,
    EventType,
    Medium,
    PushSubscription,
    Question,
    QuestionKind,
    User,
)
from tasks_app.notifications.message import Message, NotSent, one_line
from tasks_app.notifications.webhook import exchange
from tasks_app.permissions import Principal, questions_answerable_by

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


# Approving and denying in a pushed notification: which questions, and the signature that comes with them.
#
# A service worker has no CSRF token. The signature stands in for it: it is made for one user and one
# question, and reaches only a browser of that user, encrypted. It is not a login: the user's session is
# needed as well.


#: A push service keeps a message for this long while the browser is closed; the signature lasts as long.
KEPT_SECONDS = 24 * 3600
#: What the agent is told of a denial in a notification, which has no field for a reason.
DENIED_NOTES = "Denied in a notification, where no reason can be given."
#: A longer command would not be shown completely by all platforms.
_MAX_COMMAND = 120
# Not the name of this module: signatures of an earlier version stay valid.
_SALT = "tasks_app.notifications.push_decisions"


@dataclass(frozen=True)
class PushApproval:
    """An approval as a notification shows it, and the URL for its verdict."""

    command: str
    url: str
    signature: str


def approval_for(message: Message, user: User) -> PushApproval | None:
    """Return what the user may decide in the notification; None unless it is one command, shown whole."""
    if len(message.questions) != 1 or message.questions[0].kind != QuestionKind.APPROVAL:
        return None
    answerable = questions_answerable_by(Principal.unrestricted(user)).open()
    question = answerable.filter(pk=message.questions[0].id).first()
    if question is None or not (command := whole_command(question)):
        return None
    url = reverse("question_push_decide", args=[question.pk])
    return PushApproval(command, url, signing.dumps([question.pk, user.pk], salt=_SALT))


def whole_command(question: Question) -> str:
    """Return the command if the approval is about nothing else and it fits into one line; else "".

    It is printable ASCII: other characters may look like these, like blanks, or like nothing.
    """
    kinds = [piece.get("kind") for piece in question.evidence if piece.get("kind") != "rule"]
    if kinds != ["command"]:
        return ""
    text = question.evidence[0]["text"]
    if not text.isascii() or not text.isprintable() or text != one_line(text, _MAX_COMMAND):
        return ""
    return text


def is_signed(signature: str, question: Question, user: User) -> bool:
    """Return whether it came with a notification to this user about this question, and not too long ago."""
    try:
        signed = signing.loads(signature, salt=_SALT, max_age=KEPT_SECONDS)
    except signing.BadSignature:
        return False
    return bool(signed == [question.pk, user.pk])


# Send to a browser by Web Push: encrypted for it (RFC 8291), signed for its push service (RFC 8292).
#
# pywebpush encrypts and py_vapid signs. The portal sends by itself, because the connection must go to the IP
# address that was checked: the URL comes from a browser, so from anybody who is logged in.


#: The signature of a request is valid for this long.
_SIGNED_SECONDS = 3600
_GONE = (404, 410)


class BrowserGone(NotSent):
    """The browser has unsubscribed, or its subscription has expired."""


@dataclass(frozen=True)
class Browser:
    """A browser's subscription: the push service's URL, its public key and a secret."""

    endpoint: str
    p256dh: str
    auth: str

    @classmethod
    def checked(cls, endpoint: str, p256dh: str, auth: str) -> Browser:
        """Raises BadInput unless it can be sent to. The IP address is checked each time it is sent to."""
        try:
            parts = urlsplit(endpoint)
            usable = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            usable = None
        if not usable or parts.username or len(endpoint) > 2000 or not endpoint.isascii():
            raise BadInput("must be the URL of a push service.", where="endpoint")
        browser = cls(endpoint, p256dh, auth)
        try:
            browser.encrypt(b"{}")
        except ValueError:
            raise BadInput("are not the keys of a browser.", where="keys") from None
        return browser

    def encrypt(self, text: bytes) -> bytes:
        """Return the text as aes128gcm. Raises ValueError for keys that are none."""
        # Here, because it imports aiohttp: that would take a fifth of a second of each start.
        from pywebpush import WebPusher, WebPushException

        keys = {"p256dh": self.p256dh, "auth": self.auth}
        try:
            pusher = WebPusher({"endpoint": self.endpoint, "keys": keys})
            if len(pusher.auth_key) != 16:
                raise ValueError("the secret must have 16 bytes")
            return bytes(pusher.encode(text)["body"])
        except (WebPushException, IndexError) as error:
            raise ValueError(str(error)) from None


def application_server_key() -> str:
    """Return the public key that browsers subscribe with."""
    point = _signing_key().public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return urlsafe_b64encode(point).rstrip(b"=").decode()


def send(
    browser: Browser,
    message: Message,
    approval: PushApproval | None = None,
    *,
    listed: Iterable[Network] = (),
) -> int:
    """Send a message; return the HTTP status. Raises BrowserGone or another NotSent."""
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Encoding": "aes128gcm",
        "TTL": str(KEPT_SECONDS),
        "Urgency": "high",
        **_signature(browser.endpoint),
    }
    # Escaped, characters of other scripts would need up to 12 bytes each: too many for one record.
    body = browser.encrypt(json.dumps(payload(message, approval), ensure_ascii=False).encode())
    try:
        return exchange(browser.endpoint, body, headers, listed=listed)
    except NotSent as error:
        if error.status in _GONE:
            raise BrowserGone("This browser has unsubscribed.", status=error.status, permanent=True) from None
        raise


def payload(message: Message, approval: PushApproval | None = None) -> dict[str, object]:
    """Return what the service worker shows. The texts fit in one record."""
    told: dict[str, object] = {
        "title": one_line(message.headline, 200) or "Cat Herder",
        "body": one_line(message.path, 300),
        "url": urlsplit(message.url).path,
        "tag": "test",
        "actions": [],
    }
    if message.task_id:
        told["tag"] = f"task-{message.task_id}"
    if message.questions:
        told["actions"] = _actions(open="Answer", inbox="Inbox")
    if approval:
        told["title"] = ALLOW_COMMAND
        told["body"] = f"{approval.command}\n{told['body']}"
        told["actions"] = _actions(approved="Approve", denied="Deny")
        told["decide"] = {"url": approval.url, "signature": approval.signature}
    return told


def _actions(**titles: str) -> list[dict[str, str]]:
    """Return the buttons of a notification; browsers show two of them at most."""
    return [{"action": action, "title": title} for action, title in titles.items()]


def _signature(endpoint: str) -> dict[str, str]:
    """Return the header with the claim by which a push service recognises this portal. Raises NotSent."""
    from py_vapid import Vapid, VapidException

    parts = urlsplit(endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int(time.time()) + _SIGNED_SECONDS,
        "sub": settings.ENVIRONMENT.address,
    }
    try:
        # Otherwise the address of a portal would need https and no port.
        header: dict[str, str] = Vapid(_signing_key(), conf={"no-strict": True}).sign(claims)
    except VapidException as error:
        raise NotSent(f"The request could not be signed: {error}", permanent=True) from None
    return header


def _signing_key() -> ec.EllipticCurvePrivateKey:
    """Return the portal's key, derived from its secret key: so all machines have one, and a backup has it."""
    # 31 bytes are less than the order of the curve.
    derivation = HKDF(algorithm=hashes.SHA256(), length=31, salt=b"", info=b"cat-herder web push")
    number = derivation.derive(settings.SECRET_KEY.encode())
    return ec.derive_private_key(int.from_bytes(number, "big"), ec.SECP256R1())

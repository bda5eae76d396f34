"""Send to a browser by Web Push: encrypted for it (RFC 8291), signed for its push service (RFC 8292).

pywebpush encrypts and py_vapid signs. The portal sends by itself, because the connection must go to the IP
address that was checked: the URL comes from a browser, so from anybody who is logged in.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

from tasks_app.core.allowed_networks import Network
from tasks_app.core.errors import BadInput
from tasks_app.core.types import ALLOW_COMMAND
from tasks_app.notifications.errors import NotSent
from tasks_app.notifications.message import Message
from tasks_app.notifications.plain_text import one_line
from tasks_app.notifications.push_approvals import KEPT_SECONDS, PushApproval
from tasks_app.notifications.webhook import exchange

#: The signature of a request is valid for this long.
_SIGNED_SECONDS = 3600
_GONE = (404, 410)


class BrowserGone(NotSent):
    """The browser has unsubscribed, or its subscription has expired."""


@dataclass(frozen=True)
class Browser:
    """Where a browser is reached and how it decrypts: the push service's URL, its public key and a secret."""

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
        "tag": f"task-{message.task_id}" if message.task_id else "test",
        "actions": _actions(open="Answer", inbox="Inbox") if message.questions else [],
    }
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

"""Posting to a webhook: signed, to an address that was looked at, bounded in time and size."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tasks_app.notifications.allowed_networks import AddressRefused, Network, resolve
from tasks_app.notifications.errors import NotSent

#: Seconds for one step of the connection, and for all of it: a receiver that drips is cut off.
STEP_SECONDS = 10.0
ALL_SECONDS = 20.0
_GONE = 410


def signature(secret: str, body: bytes, *, at: int) -> str:
    """The value of X-Cat-Herder-Signature. `at` is signed as well, so that receivers can refuse old posts."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def post(
    address: str, payload: dict[str, Any], *, secret: str, key: str, at: int, listed: Iterable[Network] = ()
) -> int:
    """Send; the status that was answered, which is 2xx. Raises NotSent. Redirects are not followed."""
    parts = urlsplit(address)
    body = json.dumps(payload, ensure_ascii=False).encode()
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "Cat-Herder",
        "X-Cat-Herder-Event": str(payload["event"]),
        "X-Cat-Herder-Delivery": key,
        "X-Cat-Herder-Signature": signature(secret, body, at=at),
        "Connection": "close",
    }
    try:
        return _checked(_exchange(parts, body, headers, listed))
    except AddressRefused as error:
        raise NotSent(str(error), permanent=True) from None
    except ssl.SSLCertVerificationError as error:
        raise NotSent(f"Its certificate is not accepted: {error.verify_message}") from None
    except TimeoutError:
        raise NotSent(f"No answer within {STEP_SECONDS:.0f} seconds.") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise NotSent(f"The connection failed: {_words(error)}") from None


def _exchange(parts: SplitResult, body: bytes, headers: dict[str, str], listed: Iterable[Network]) -> int:
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    number = resolve(host, port, listed)
    with _line(number, port, host if parts.scheme == "https" else None) as line:
        connection = http.client.HTTPConnection(host, port)
        connection.sock = line
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body=body, headers=headers)
        return connection.getresponse().status


@contextmanager
def _line(number: str, port: int, tls_host: str | None) -> Iterator[socket.socket]:
    """A connection that ends by itself after ALL_SECONDS, however slowly the other side speaks."""
    held = [socket.create_connection((number, port), timeout=STEP_SECONDS)]

    def cut() -> None:
        with contextlib.suppress(OSError):
            held[0].shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(ALL_SECONDS, cut)
    timer.start()
    try:
        if tls_host is not None:
            context = ssl.create_default_context()
            secured = context.wrap_socket(held[0], server_hostname=tls_host, do_handshake_on_connect=False)
            held[0] = secured
            secured.do_handshake()
        yield held[0]
    finally:
        timer.cancel()
        held[0].close()


def _checked(status: int) -> int:
    if 200 <= status < 300:
        return status
    if 300 <= status < 400:
        raise NotSent(f"It answered {status}: redirects are not followed.", status=status)
    raise NotSent(f"It answered {status}.", status=status, permanent=status == _GONE)


def _words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"{text}."

"""Post to a webhook: signed, to a checked IP address, with timeouts."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tasks_app.core.allowed_networks import IpAddressRefused, Network, resolve
from tasks_app.notifications.message import NotSent

#: Timeouts of one step and of the whole exchange, because a receiver may answer very slowly.
STEP_SECONDS = 10.0
TOTAL_SECONDS = 20.0
_GONE = 410


def signature(secret: str, body: bytes, *, at: int) -> str:
    """Return X-Cat-Herder-Signature. The time `at` is signed too, so that receivers can refuse old posts."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def post(
    url: str, payload: dict[str, Any], *, secret: str, key: str, at: int, listed: Iterable[Network] = ()
) -> int:
    """Post and return the status, which is 2xx. Raises NotSent. Redirects are not followed."""
    body = json.dumps(payload, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "X-Cat-Herder-Event": str(payload["event"]),
        "X-Cat-Herder-Delivery": key,
        "X-Cat-Herder-Signature": signature(secret, body, at=at),
    }
    return exchange(url, body, headers, listed=listed)


def exchange(url: str, body: bytes, headers: Mapping[str, str], *, listed: Iterable[Network]) -> int:
    """Post to a URL that a user or a browser named; return the status, which is 2xx. Raises NotSent."""
    parts = urlsplit(url)
    headers = {"Host": parts.netloc, "User-Agent": "Cat-Herder", **headers, "Connection": "close"}
    try:
        status = _exchange(parts, body, headers, listed)
    except IpAddressRefused as error:
        raise NotSent(str(error), permanent=True) from None
    except ssl.SSLCertVerificationError as error:
        raise NotSent(f"Its certificate is not accepted: {error.verify_message}") from None
    except TimeoutError:
        raise NotSent(f"No answer within {STEP_SECONDS:.0f} seconds.") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NotSent(f"The connection failed: {reason}.") from None
    if 300 <= status < 400:
        raise NotSent(f"It answered {status}: redirects are not followed.", status=status)
    if not 200 <= status < 300:
        raise NotSent(f"It answered {status}.", status=status, permanent=status == _GONE)
    return status


def _exchange(parts: SplitResult, body: bytes, headers: dict[str, str], listed: Iterable[Network]) -> int:
    host, port, tls_host = parts.hostname or "", parts.port or 80, None
    if parts.scheme == "https":
        port, tls_host = parts.port or 443, host
    ip = resolve(host, port, listed)
    with _connect(ip, port, tls_host) as connected:
        connection = http.client.HTTPConnection(host, port)
        connection.sock = connected
        path = parts.path or "/"
        if parts.query:
            path += f"?{parts.query}"
        connection.request("POST", path, body=body, headers=headers)
        return connection.getresponse().status


@contextmanager
def _connect(ip: str, port: int, tls_host: str | None) -> Iterator[socket.socket]:
    """Yield a connection that is shut down after TOTAL_SECONDS."""
    sockets = [socket.create_connection((ip, port), timeout=STEP_SECONDS)]

    def shut_down() -> None:
        with contextlib.suppress(OSError):
            sockets[0].shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(TOTAL_SECONDS, shut_down)
    timer.start()
    try:
        if tls_host is not None:
            context = ssl.create_default_context()
            secured = context.wrap_socket(sockets[0], server_hostname=tls_host, do_handshake_on_connect=False)
            sockets[0] = secured
            secured.do_handshake()
        yield sockets[0]
    finally:
        timer.cancel()
        sockets[0].close()

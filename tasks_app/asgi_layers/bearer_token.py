"""The token of a request that is answered without Django."""

from __future__ import annotations

from tasks_app.asgi_layers.body_limits import Message


def bearer_token(scope: Message) -> bytes:
    """Return the token of `Authorization: Bearer TOKEN`; empty without one, and with several such headers."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""

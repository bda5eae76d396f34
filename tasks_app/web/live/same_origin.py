"""Which pages may open a socket: the portal's own, and no other on the same machine."""

from __future__ import annotations

from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings


class SameOriginOnly:
    """Refuses a WebSocket handshake from any other host or port.

    Cookies do not distinguish ports: a page that an agent serves on another port would come with the user's
    session.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        allowed = is_same_origin(headers.get(b"origin", ""), host=headers.get(b"host", ""))
        application = self._application if allowed else WebsocketDenier.as_asgi()
        return await application(scope, receive, send)


def is_same_origin(origin: str, *, host: str) -> bool:
    """Whether the page came from the host that the socket goes to; behind a proxy, from CATHERDER_URL."""
    scheme, _, netloc = origin.partition("://")
    same = scheme in ("http", "https") and netloc != "" and netloc.lower() == host.lower()
    return same or origin in settings.CSRF_TRUSTED_ORIGINS

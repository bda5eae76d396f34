"""Which pages may open a socket: the portal's own, and no other on the same machine."""

from __future__ import annotations

from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings


class OwnPagesOnly:
    """Refuses a handshake from any other host or port.

    Cookies know no ports: a page that an agent serves on another one would come with the user's session.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        own = is_own(headers.get(b"origin", ""), host=headers.get(b"host", ""))
        application = self._application if own else WebsocketDenier.as_asgi()
        return await application(scope, receive, send)


def is_own(origin: str, *, host: str) -> bool:
    """Whether the page came from where the socket goes to; CATHERDER_URL counts where a proxy is between."""
    scheme, _, place = origin.partition("://")
    same = scheme in ("http", "https") and place != "" and place.lower() == host.lower()
    return same or origin in settings.CSRF_TRUSTED_ORIGINS

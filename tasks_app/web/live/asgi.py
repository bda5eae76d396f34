"""What the ASGI application has of live updates: the sockets' URLs, who may open one, and the tailer.

Only pages of the portal may open a socket, and no other on the same machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.db import connection
from django.urls import path, re_path

from tasks_app.engine.traces.hop_writer import writing_hops
from tasks_app.web.live.consumers import LiveConsumer
from tasks_app.web.live.tailer import run_tailer


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


Message = dict[str, Any]


async def lifespan(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Run the tailer from the start to the end, and keep database connections for later requests.

    With an endpoint for traces, what is noted for them is stored all the time, too.
    """
    await receive()  # lifespan.startup
    connection.keep_after_close()  # type: ignore[attr-defined]
    with writing_hops():
        async with run_tailer():
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown
    connection.keep_no_more()  # type: ignore[attr-defined]
    await send({"type": "lifespan.shutdown.complete"})


websocket_urlpatterns = [
    path("ws/live/", LiveConsumer.as_asgi()),
    # Without this the router raises, and every stranger could fill the log with tracebacks.
    re_path("", WebsocketDenier.as_asgi()),
]

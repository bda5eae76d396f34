"""URLs of the sockets."""

from __future__ import annotations

from channels.security.websocket import WebsocketDenier
from django.urls import path, re_path

from tasks_app.web.live.consumers import LiveConsumer

websocket_urlpatterns = [
    path("ws/live/", LiveConsumer.as_asgi()),
    # Without this the router raises, and every stranger could fill the log with tracebacks.
    re_path("", WebsocketDenier.as_asgi()),
]

"""The entry of the ASGI server: pages, sockets, and what runs as long as the server."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import SessionMiddlewareStack
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
pages = get_asgi_application()

from tasks_app.live.lifespan import lifespan  # noqa: E402 - needs the models that were loaded above
from tasks_app.live.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": pages,
        # The session, not a user read once: the consumer asks again and again whose it is.
        "websocket": AllowedHostsOriginValidator(SessionMiddlewareStack(URLRouter(websocket_urlpatterns))),
        "lifespan": lifespan,
    }
)

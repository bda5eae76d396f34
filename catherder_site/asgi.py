"""The ASGI application: pages, WebSockets and the server's lifespan."""

import gc
import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import SessionMiddlewareStack
from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
gc.disable()  # while modules are imported there is no garbage; TasksConfig switches it on again
pages = get_asgi_application()

from catherder_site.asgi_layers.body_limits import Application, LimitedBodies  # noqa: E402 - only now are there settings
from catherder_site.asgi_layers.metrics import Metrics  # noqa: E402
from catherder_site.asgi_layers.probes import Probes, Readiness  # noqa: E402
from catherder_site.asgi_layers.proxies import ForwardedClients  # noqa: E402
from catherder_site.asgi_layers.sandboxed_peers import RefuseSandboxedPeers  # noqa: E402
from catherder_site.worker_hosts.application import WorkerHosts  # noqa: E402
from tasks_app.operations.health import not_ready  # noqa: E402
from tasks_app.reporting.metrics import exposition  # noqa: E402
from tasks_app.web.live.asgi import SameOriginOnly, lifespan, websocket_urlpatterns  # noqa: E402

# The session, not a user read once: the consumer asks again and again whose it is.
sockets = AllowedHostsOriginValidator(SessionMiddlewareStack(URLRouter(websocket_urlpatterns)))


def _entered(inner: Application) -> Application:
    """Check the connection first, and only then apply the headers of a trusted proxy."""
    return RefuseSandboxedPeers(
        ForwardedClients(inner, networks=settings.ENVIRONMENT.proxies),
        folder=settings.DATA_DIR,
        allow_others=settings.ENVIRONMENT.local_sandboxes == "allow",
    )


#: Maximum bytes of a body. Well above what forms may hold, so that those can say it in their own words.
BODY_LIMIT = 10 * settings.DATA_UPLOAD_MAX_MEMORY_SIZE
measured_pages = Metrics(pages, read=exposition, token=settings.ENVIRONMENT.metrics_token or "")

application = ProtocolTypeRouter(
    {
        "http": _entered(
            WorkerHosts(  # packs are larger than any form, and have a limit of their own
                LimitedBodies(
                    Probes(measured_pages, readiness=Readiness(not_ready)),
                    limit=BODY_LIMIT,
                )
            )
        ),
        "websocket": _entered(SameOriginOnly(sockets)),
        "lifespan": lifespan,
    }
)

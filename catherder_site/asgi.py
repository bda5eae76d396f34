"""The ASGI application: pages, WebSockets and the server's lifespan."""

import gc
import os

from channels.db import database_sync_to_async
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import SessionMiddlewareStack
from django.conf import settings
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
gc.disable()  # while modules are imported there is no garbage; TasksConfig switches it on again
# A page makes some 100,000 objects, and with Python's 700 the collector took a fifth of its CPU time.
gc.set_threshold(10_000)
pages = get_asgi_application()

from tasks_app.asgi_layers.body_limits import (  # noqa: E402 - only now are there settings
    Application,
    Credentials,
    LimitedBodies,
)
from tasks_app.asgi_layers.connection_limits import CountedClients  # noqa: E402
from tasks_app.asgi_layers.metrics import Metrics  # noqa: E402
from tasks_app.asgi_layers.probes import Probes, Readiness  # noqa: E402
from tasks_app.asgi_layers.proxies import ForwardedClients  # noqa: E402
from tasks_app.asgi_layers.sandboxed_peers import (  # noqa: E402
    RefuseForwardedSandboxes,
    RefuseSandboxedPeers,
    RefuseTokensFromWorkers,
    SandboxGuard,
)
from tasks_app.mcp_server.application import McpServer  # noqa: E402
from tasks_app.models import WorkerBeat  # noqa: E402
from tasks_app.operations.health import not_ready  # noqa: E402
from tasks_app.services.accounts import session_exists, token_of  # noqa: E402
from tasks_app.services.usage.metrics import exposition  # noqa: E402
from tasks_app.web.live.tailer import SameOriginOnly, lifespan, websocket_urlpatterns  # noqa: E402
from tasks_app.worker_api.application import WorkerHosts  # noqa: E402

# The session, not a user read once: the consumer asks again and again whose it is.
sockets = AllowedHostsOriginValidator(SessionMiddlewareStack(URLRouter(websocket_urlpatterns)))


guard = SandboxGuard(folder=settings.DATA_DIR, allow_others=settings.ENVIRONMENT.local_sandboxes == "allow")


def _entered(inner: Application) -> Application:
    """Check the connection first, and only then apply the headers of a trusted proxy."""
    forwarded = ForwardedClients(
        RefuseForwardedSandboxes(inner, guard), networks=settings.ENVIRONMENT.proxies
    )
    return RefuseSandboxedPeers(forwarded, guard)


#: Maximum bytes of a body. Well above what forms may hold, so that those can say it in their own words.
BODY_LIMIT = 10 * settings.DATA_UPLOAD_MAX_MEMORY_SIZE


async def exists(shown: Credentials) -> bool:
    """Return whether there is the session of a user, or the API token."""
    if shown.token and await database_sync_to_async(token_of)(shown.token):
        return True
    return bool(shown.session_key) and await database_sync_to_async(session_exists)(shown.session_key)


guarded_pages: Application = McpServer(pages)
if settings.ENVIRONMENT.tokens_from_workers == "refuse":
    find_addresses = database_sync_to_async(WorkerBeat.objects.ip_addresses)
    guarded_pages = RefuseTokensFromWorkers(guarded_pages, find_addresses)
measured_pages = Metrics(guarded_pages, read=exposition, token=settings.ENVIRONMENT.metrics_token or "")

application = ProtocolTypeRouter(
    {
        "http": _entered(
            CountedClients(
                WorkerHosts(  # packs are larger than any form, and have a limit of their own
                    LimitedBodies(
                        Probes(measured_pages, readiness=Readiness(not_ready)),
                        limit=BODY_LIMIT,
                        is_logged_in=exists,
                    )
                )
            )
        ),
        "websocket": _entered(SameOriginOnly(sockets)),
        "lifespan": lifespan,
    }
)

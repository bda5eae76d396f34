"""`/healthz` and `/readyz` for load balancers and process managers, handled before Django.

They stand before Django's middleware: a probe names the machine by its IP address, which no list of hosts
has, needs no session, and must be answered also while the database holds up every page.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.asgi_layers.requests import SharedCall, answer, refuse_method

logger = logging.getLogger(__name__)

#: Seconds for which an answer of `/readyz` is given again: however many ask, the services are asked once.
CACHED_SECONDS = 1.0
#: Seconds that the services get; a database that never answers is one that is not reachable.
PATIENCE_SECONDS = 2.0
#: A header of the answer of `/healthz`: the address of a proxy that passed it on, but is not trusted.
IGNORED_PROXY = "x-ignored-proxy"
_SLOW = "The database or Redis does not answer in time."

#: Why the portal cannot work; empty if it can. Never a secret: anybody may read it.
Reasons = tuple[str, ...]


class Readiness:
    """Calls `look` for all that ask, and caches the result for a moment."""

    def __init__(self, look: Callable[[], Reasons]) -> None:
        self._look = SharedCall(look, name="readiness")
        self._fault: Reasons = ()
        self._fault_until = 0.0

    async def reasons(self) -> Reasons:
        if time.monotonic() < self._fault_until:
            return self._fault
        try:
            return await self._look.result(again_for=CACHED_SECONDS, patience=PATIENCE_SECONDS)
        except TimeoutError:
            self._fault = (_SLOW,)
        except Exception:
            logger.exception("the readiness of the portal could not be found out")
            self._fault = ("The portal's log says what is wrong.",)
        self._fault_until = time.monotonic() + CACHED_SECONDS
        return self._fault


class Probes:
    """Responds to `/healthz` (the process lives) and `/readyz` (it can work); passes on all else."""

    def __init__(self, application: Application, *, readiness: Readiness) -> None:
        self._application = application
        self._readiness = readiness

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope.get("path") if scope["type"] == "http" else None
        if path not in ("/healthz", "/readyz"):
            await self._application(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await refuse_method(scope, send)
        elif path == "/healthz":
            ignored = scope.get("ignored_proxy", "").encode()
            await answer(scope, send, 200, b"ok\n", {IGNORED_PROXY.encode(): ignored} if ignored else {})
        else:
            reasons = await self._readiness.reasons()
            text = "".join(f"{line}\n" for line in reasons or ("ready",))
            await answer(scope, send, 503 if reasons else 200, text.encode())

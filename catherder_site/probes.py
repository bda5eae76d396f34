"""`/healthz` and `/readyz` for load balancers and process managers, handled before Django.

They stand before Django's middleware: a probe names the machine by its IP address, which no list of hosts
has, needs no session, and must be answered also while the database holds up every page.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from catherder_site.body_limits import Application, Message, Receive, Send

logger = logging.getLogger(__name__)

#: Seconds for which an answer of `/readyz` is given again: however many ask, the services are asked once.
CACHED_SECONDS = 1.0
#: Seconds that the services get; a database that never answers is one that is not reachable.
PATIENCE_SECONDS = 2.0
_SLOW = "The database or Redis does not answer in time."

#: Why the portal cannot work; empty if it can. Never a secret: anybody may read it.
Reasons = tuple[str, ...]


class Readiness:
    """Calls `look` in a thread, one call at a time, and caches the result for a moment."""

    def __init__(self, look: Callable[[], Reasons]) -> None:
        self._look = look
        self._running: asyncio.Future[Reasons] | None = None
        self._known: Reasons = ()
        self._known_until = 0.0

    async def reasons(self) -> Reasons:
        if time.monotonic() >= self._known_until:
            self._known = await self._fresh()
            self._known_until = time.monotonic() + CACHED_SECONDS
        return self._known

    async def _fresh(self) -> Reasons:
        """Return a new result of `look`. At most one call runs, so that threads do not pile up."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_future()
            # A daemon, unlike those of a pool: a database that never answers must not hold up the exit.
            threading.Thread(target=self._run, args=(self._running,), name="readiness", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.shield(self._running), PATIENCE_SECONDS)
        except TimeoutError:
            return (_SLOW,)

    def _run(self, future: asyncio.Future[Reasons]) -> None:
        try:
            found = self._look()
        except Exception:
            logger.exception("the readiness of the portal could not be found out")
            found = ("The portal's log says what is wrong.",)
        with suppress(RuntimeError):  # the server has stopped meanwhile
            future.get_loop().call_soon_threadsafe(future.set_result, found)


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
            await _answer(scope, send, 405, ("Ask with GET or HEAD.",))
        elif path == "/healthz":
            await _answer(scope, send, 200, ("ok",))
        else:
            reasons = await self._readiness.reasons()
            await _answer(scope, send, 503 if reasons else 200, reasons or ("ready",))


async def _answer(scope: Message, send: Send, status: int, lines: Reasons) -> None:
    body = "".join(f"{line}\n" for line in lines).encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

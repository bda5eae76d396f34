"""`/metrics` for Prometheus (O3), handled before Django as probes are: the Host header is not checked."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable

from django.db import connection

from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.asgi_layers.requests import SharedCall, answer, bearer_token, refuse_method

logger = logging.getLogger(__name__)

#: Seconds for which metrics are given again: however many ask, the rows are read once.
CACHED_SECONDS = 5.0
#: Seconds that reading may take: Prometheus waits no longer, unless told to.
PATIENCE_SECONDS = 10.0
PATH = "/metrics"


class Metrics:
    """Serves `/metrics` to clients with the token; without a configured token there is no such page."""

    def __init__(self, application: Application, *, read: Callable[[], bytes], token: str) -> None:
        self._application = application
        self._token = token.encode()
        self._metrics = SharedCall(lambda: _in_a_thread(read), name="metrics")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("path") != PATH or not self._token:
            await self._application(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await refuse_method(scope, send)
        elif not hmac.compare_digest(bearer_token(scope), self._token):
            refusal = b"This needs the token of CATHERDER_METRICS_TOKEN, as in Authorization: Bearer TOKEN.\n"
            await answer(scope, send, 401, refusal, {b"www-authenticate": b"Bearer"})
        else:
            try:
                body = await self._metrics.result(again_for=CACHED_SECONDS, patience=PATIENCE_SECONDS)
            except TimeoutError:
                await answer(scope, send, 503, b"The database does not answer in time.\n")
            except Exception:
                logger.exception("the metrics for %s could not be read", PATH)
                await answer(scope, send, 503, b"The metrics could not be read; the portal's log says why.\n")
            else:
                await answer(scope, send, 200, body)


def _in_a_thread(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    finally:
        connection.close()  # each call has its own thread and connection

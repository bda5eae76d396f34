"""An application that does nothing but what a floor needs, for uvicorn: `BareServer` starts it.

A POST stores rows in one transaction, if the environment names a database. A WebSocket is greeted and kept;
what it says is sent to all of them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
#: Variables of the environment: a database, a task in it, and how many rows a POST stores.
DATABASE, TASK, ROWS = "BENCH_DATABASE", "BENCH_TASK", "BENCH_ROWS"


class Application:
    """The ASGI application. `store` is called for each POST."""

    def __init__(self, store: Callable[[], None]) -> None:
        self._store = store
        self._sockets: list[Send] = []

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._keep(receive, send)
        else:
            await self._answer(scope["method"], receive, send)

    async def _answer(self, method: str, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        if method == "POST":
            self._store()
        body = b"stored"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _keep(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        self._sockets.append(send)
        while (said := await receive())["type"] != "websocket.disconnect":
            for one in self._sockets:
                await one({"type": "websocket.send", "text": said["text"]})
        self._sockets.remove(send)


def make() -> Application:
    """Return the application that the environment asks for."""
    if DATABASE not in os.environ:
        return Application(lambda: None)
    # Only here: a server of WebSockets, whose memory is measured, needs no database.
    from tests.bench.floors.plain_database import PlainDatabase, changes

    database = PlainDatabase(os.environ[DATABASE])
    rows = changes(int(os.environ[TASK]), int(os.environ[ROWS]))
    return Application(lambda: database.insert(rows))

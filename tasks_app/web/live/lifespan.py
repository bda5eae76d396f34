"""The part of ASGI that starts and stops what lives as long as the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tasks_app.web.live.tailer import run_tailer

Message = dict[str, Any]


async def lifespan(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Run the tailer from the server's start to its end."""
    await receive()  # lifespan.startup
    async with run_tailer():
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})

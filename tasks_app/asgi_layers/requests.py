"""Requests that are answered without Django: their token, a plain answer, one call that many wait for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from tasks_app.asgi_layers.body_limits import Message, Send


def bearer_token(scope: Message) -> bytes:
    """Return the token of `Authorization: Bearer TOKEN`; empty without one, and with several such headers."""
    given: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(given) != 1:
        return b""
    scheme, _, token = given[0].partition(b" ")
    if scheme.lower() != b"bearer":
        return b""
    return token.strip()


# One slow call for however many requests.


Result = TypeVar("Result")


class SharedCall(Generic[Result]):
    """Calls `function` in a thread, one call at a time, and gives its result again for a moment."""

    def __init__(self, function: Callable[[], Result], *, name: str) -> None:
        self._function = function
        self._name = name
        self._running: asyncio.Future[Result] | None = None
        self._known: tuple[Result, float] | None = None

    async def result(self, *, again_for: float, patience: float) -> Result:
        """Return the result, which may be `again_for` seconds old.

        Raises what the function raises, and TimeoutError after `patience` seconds; the call then goes on.
        """
        if self._known and time.monotonic() < self._known[1] + again_for:
            return self._known[0]
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_future()
            self._running.add_done_callback(_mark_retrieved)
            # A daemon, unlike a pool's threads: a database that never answers must not hold up the exit.
            threading.Thread(target=self._run, args=(self._running,), name=self._name, daemon=True).start()
        found = await asyncio.wait_for(asyncio.shield(self._running), patience)
        self._known = (found, time.monotonic())
        return found

    def _run(self, future: asyncio.Future[Result]) -> None:
        settle: Callable[[], None]
        try:
            found = self._function()
        except Exception as error:
            fault = error  # the name `error` ends with this block
            settle = lambda: future.set_exception(fault)  # noqa: E731
        else:
            settle = lambda: future.set_result(found)  # noqa: E731
        with suppress(RuntimeError):  # the server has stopped meanwhile
            future.get_loop().call_soon_threadsafe(settle)


def _mark_retrieved(future: asyncio.Future[Result]) -> None:
    """Retrieve the exception: otherwise asyncio logs it if nobody waits any more."""
    if not future.cancelled():
        future.exception()


# Answers without Django: a few lines of text.


async def answer(
    scope: Message, send: Send, status: int, body: bytes, more: Mapping[bytes, bytes] | None = None
) -> None:
    """Send a text in UTF-8 that nobody caches, with `more` headers; to HEAD without the text."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *(more or {}).items(),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def refuse_method(scope: Message, send: Send) -> None:
    await answer(scope, send, 405, b"Ask with GET or HEAD.\n", {b"allow": b"GET, HEAD"})

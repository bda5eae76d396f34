"""A bound on the requests that Django works on at the same time; the others wait in the order they came.

Under ASGI each request has a thread and a database connection of its own. Without a bound, 200 answers at
once would need 200 connections, of which PostgreSQL has 100 by default. With SQLite, 200 threads would try
again and again to begin their transactions, in no order. A request that waits here has no connection yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import async_only_middleware

#: Python works on one at a time. There are more, because some wait for git or for the database.
MOST_AT_ONCE = 16

Respond = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@async_only_middleware
def request_slots(get_response: Respond) -> Respond:
    """Let at most `MOST_AT_ONCE` requests of an event loop pass. Sending their responses does not count."""
    slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def respond(request: HttpRequest) -> HttpResponseBase:
        slot = slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MOST_AT_ONCE))
        await slot.acquire()
        work = asyncio.ensure_future(get_response(request))
        # A client that goes away cancels its request, but not the thread that works on it.
        work.add_done_callback(lambda _: slot.release())
        return await asyncio.shield(work)

    return respond

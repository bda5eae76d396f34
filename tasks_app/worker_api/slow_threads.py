"""Threads for short checks of requests, and other threads for work that takes long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from django.db import connection

from tasks_app.worker_api.bodies import RequestRefused

T = TypeVar("T")


class Busy(RequestRefused):
    """The maximum of work is running and waiting."""

    status = 503
    headers = ((b"retry-after", b"30"),)


class SlowThreads:
    """Does at most `most` pieces of work at a time; up to `waiting` more wait for their turn.

    The threads are daemons: a portal that is told to stop does not wait for them.
    """

    def __init__(self, *, most: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(most)
        self.most_asked = most + waiting
        self._asked = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, done in a thread once one is free. Raises Busy.

        A thread whose caller was cancelled keeps its place until its work has ended.
        """
        if self._asked >= self.most_asked:
            raise Busy("The portal has too much other work. Ask again later.")
        self._asked += 1
        return await asyncio.shield(self._run(work))

    async def _run(self, work: Callable[[], T]) -> T:
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()

        def do() -> None:
            try:
                done = _closing(work)
            except Exception as error:
                result.set_exception(error)
            else:
                result.set_result(done)

        try:
            async with self._free:
                threading.Thread(target=do, name="slow-work", daemon=True).start()
                return await asyncio.wrap_future(result)
        finally:
            self._asked -= 1


async def in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns, which takes only as long as a query of the database."""

    return await asyncio.to_thread(_closing, call)


def _closing(call: Callable[[], T]) -> T:
    """Return what `call` returns, with the database connection of this thread closed before that.

    Otherwise a caller that waits for the work could drop a database that still has a connection.
    """
    try:
        return call()
    finally:
        connection.close()

"""One asyncio run for a caller who lives in an ordinary thread.

The SDK wants an event loop, the database wants one thread with one connection. So the loop gets a
thread of its own, and whatever it wants stored is handed back and called in the caller's thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """Runs `main` in a thread with a loop; serves its calls, and ticks, in the thread of the caller."""

    def __init__(self, *, tick: Callable[[], None], tick_seconds: float = 1.0) -> None:
        self._tick = tick
        self._tick_seconds = tick_seconds
        self._next_tick = 0.0
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """In the loop: have `function` called in the caller's thread and wait for what it returns."""
        future: Future[T] = Future()
        self._calls.put(lambda: _fulfil(future, function, arguments))
        return await asyncio.wrap_future(future)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], *, stop: Callable[[BaseException], None]) -> T:
        """In the caller's thread: run `main` to its end and return what it returns.

        When a served call or a tick raises, `stop` is called once with the error, from this thread, and
        must bring `main` to an end; the error is raised here after that.
        """
        outcome: Future[T] = Future()
        thread = threading.Thread(target=self._loop, args=(main, outcome), name="agent-loop")
        thread.start()
        self._next_tick = time.monotonic() + self._tick_seconds
        problem: BaseException | None = None
        try:
            problem = self._serve(stop)
        finally:
            thread.join()
        if problem is not None:
            raise problem
        return outcome.result()

    def _loop(self, main: Callable[[], Coroutine[Any, Any, T]], outcome: Future[T]) -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            self._calls.put(None)

    def _serve(self, stop: Callable[[BaseException], None]) -> BaseException | None:
        """Serve calls until the loop has ended; the first error among them."""
        problem: BaseException | None = None
        while True:
            try:
                if self._serve_one():
                    return problem
            except BaseException as error:
                if problem is None:
                    problem = error
                    stop(error)

    def _serve_one(self) -> bool:
        """One call, or a tick: when it is due, however many calls wait. Whether the loop has ended."""
        left = self._next_tick - time.monotonic()
        call: Callable[[], None] | None = self._on_time
        if left > 0:
            with suppress(queue.Empty):
                call = self._calls.get(timeout=left)
        if call is not None:
            call()
        return call is None

    def _on_time(self) -> None:
        self._next_tick = time.monotonic() + self._tick_seconds
        self._tick()


def _fulfil(future: Future[T], function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    """A call that fails fails in the loop as well, so that nothing goes on as if it were stored.

    A call that the loop no longer waits for is made all the same: what was seen is to be stored.
    """
    awaited = future.set_running_or_notify_cancel()
    try:
        result = function(*arguments)
    except BaseException as error:
        if awaited:
            future.set_exception(error)
        raise
    if awaited:
        future.set_result(result)

"""A bridge between an asyncio loop and a caller in an ordinary thread.

The SDK needs an event loop, the database needs one thread with one connection. So the loop runs in a thread
of its own, and calls that store something are handed back to the caller's thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """Runs a coroutine in a thread with a loop, and serves its calls, and ticks, in the caller's thread."""

    def __init__(self, *, tick: Callable[[], None], tick_seconds: float = 1.0) -> None:
        self._tick = tick
        self._tick_seconds = tick_seconds
        self._next_tick = 0.0
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function` in the caller's thread and return what it returns. To be used in the loop."""
        future: Future[T] = Future()
        self._calls.put(lambda: _fulfil(future, function, arguments))
        return await asyncio.wrap_future(future)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], *, stop: Callable[[BaseException], None]) -> T:
        """Run `main` to its end and return what it returns. To be used in the caller's thread.

        When a served call or a tick raises, `stop` is called once with the error, from this thread, and must
        make `main` end. Then the error is raised here.
        """
        outcome: Future[T] = Future()
        # In the caller's context, to which log lines belong.
        run_loop = contextvars.copy_context().run
        thread = threading.Thread(target=run_loop, args=(self._run_loop, main, outcome), name="agent-loop")
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

    def _run_loop(self, main: Callable[[], Coroutine[Any, Any, T]], outcome: Future[T]) -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            self._calls.put(None)

    def _serve(self, stop: Callable[[BaseException], None]) -> BaseException | None:
        """Serve calls until the loop has ended. Return the first error among them."""
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
        """Serve one call, or a tick if it is due. Return whether the loop has ended.

        A due tick precedes all waiting calls.
        """
        left = self._next_tick - time.monotonic()
        call: Callable[[], None] | None = self._tick_on_time
        if left > 0:
            with suppress(queue.Empty):
                call = self._calls.get(timeout=left)
        if call is not None:
            call()
        return call is None

    def _tick_on_time(self) -> None:
        self._next_tick = time.monotonic() + self._tick_seconds
        self._tick()


def _fulfil(future: Future[T], function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    """Call the function and give its result to the loop.

    An error is raised in the loop, too, so that nothing goes on as if the data were stored. A call that the
    loop no longer waits for is made all the same, because what was received must be stored.
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

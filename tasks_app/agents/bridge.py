"""One asyncio run for a caller who lives in an ordinary thread.

The SDK wants an event loop, the database wants one thread with one connection. So the loop gets a
thread of its own, and whatever it wants stored is handed back and called in the caller's thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """Runs `main` in a thread with a loop; serves its calls, and ticks, in the thread of the caller."""

    def __init__(self, *, tick: Callable[[], None], tick_seconds: float = 1.0) -> None:
        self._tick = tick
        self._tick_seconds = tick_seconds
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
                call = self._calls.get(timeout=self._tick_seconds)
            except queue.Empty:
                call = self._tick
            if call is None:
                return problem
            try:
                call()
            except BaseException as error:
                if problem is None:
                    problem = error
                    stop(error)


def _fulfil(future: Future[T], function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    """A call that fails fails in the loop as well, so that nothing goes on as if it were stored."""
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
        raise

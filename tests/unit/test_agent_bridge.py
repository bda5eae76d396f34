"""The bridge: a loop in a thread of its own whose calls happen in the caller's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tasks_app.agent.bridge import Bridge


class Broken(Exception):
    pass


def nothing(*arguments: Any) -> None:
    return None


def bridge(tick: Callable[[], None] = nothing, tick_seconds: float = 600) -> Bridge:
    return Bridge(tick=tick, tick_seconds=tick_seconds)


class Ending:
    """Brings a loop that waits for it to an end, as the end of an agent's process does."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.errors: list[BaseException] = []

    async def after(self, main: Callable[[], Any] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        if main is not None:
            await main()
        await self._event.wait()

    def __call__(self, error: BaseException) -> None:
        self.errors.append(error)
        assert self._loop
        self._loop.call_soon_threadsafe(self._event.set)


def fail() -> None:
    raise Broken("the database is gone")


def test_it_returns_what_the_loop_returned() -> None:
    async def main() -> int:
        return 7

    assert bridge().run(main, stop=nothing) == 7


def test_a_call_happens_in_the_callers_thread_and_its_value_comes_back() -> None:
    mine = bridge()

    async def main() -> tuple[int, int]:
        return await mine.call(threading.get_ident), threading.get_ident()

    called_in, looped_in = mine.run(main, stop=nothing)
    assert called_in == threading.get_ident() != looped_in


def test_arguments_are_passed_and_calls_are_made_in_order() -> None:
    mine = bridge()
    made: list[int] = []

    async def main() -> None:
        await asyncio.gather(*(mine.call(made.append, number) for number in range(50)))

    mine.run(main, stop=nothing)
    assert made == list(range(50))


def test_an_error_of_the_loop_is_raised() -> None:
    async def main() -> None:
        raise Broken("no such session")

    with pytest.raises(Broken, match="no such session"):
        bridge().run(main, stop=nothing)


def test_an_error_in_a_call_fails_in_the_loop_and_ends_the_run() -> None:
    """Nothing goes on as if it were stored."""
    mine, ending, seen = bridge(), Ending(), []

    async def main() -> None:
        try:
            await mine.call(fail)
        except Broken as error:
            seen.append(error)

    with pytest.raises(Broken, match="the database is gone"):
        mine.run(lambda: ending.after(main), stop=ending)
    assert len(seen) == len(ending.errors) == 1


def test_calls_after_the_first_error_are_still_made_and_stop_is_called_once() -> None:
    mine, ending = bridge(), Ending()
    made: list[int] = []

    async def main() -> None:
        await asyncio.gather(
            mine.call(fail), mine.call(fail), mine.call(made.append, 1), return_exceptions=True
        )

    with pytest.raises(Broken):
        mine.run(lambda: ending.after(main), stop=ending)
    assert made == [1] and len(ending.errors) == 1


def test_ticks_come_while_the_loop_is_busy_with_itself() -> None:
    ticked = threading.Event()

    async def main() -> bool:
        return await asyncio.to_thread(ticked.wait, 30)

    assert bridge(ticked.set, tick_seconds=0.01).run(main, stop=nothing)


def test_ticks_come_however_many_calls_wait() -> None:
    """The lease is renewed by a tick, also while an agent talks without a pause."""
    ticked = threading.Event()
    mine = bridge(ticked.set, tick_seconds=0.01)

    async def main() -> None:
        while not ticked.is_set():
            await asyncio.gather(*(mine.call(nothing) for _ in range(100)))

    mine.run(main, stop=nothing)


def test_ticks_happen_in_the_callers_thread() -> None:
    threads: list[int] = []
    ticked = threading.Event()

    def tick() -> None:
        threads.append(threading.get_ident())
        ticked.set()

    async def main() -> None:
        await asyncio.to_thread(ticked.wait, 30)

    bridge(tick, tick_seconds=0.01).run(main, stop=nothing)
    assert set(threads) == {threading.get_ident()}


def test_an_error_in_a_tick_stops_the_loop_and_is_raised() -> None:
    ending = Ending()

    with pytest.raises(Broken):
        bridge(fail, tick_seconds=0.01).run(ending.after, stop=ending)
    assert len(ending.errors) == 1


def test_a_call_that_the_loop_no_longer_waits_for_is_made_all_the_same() -> None:
    """What was seen of the agent is to be stored."""
    mine, gate = bridge(), threading.Event()
    made: list[int] = []

    async def main() -> None:
        first = asyncio.ensure_future(mine.call(gate.wait, 30))
        second = asyncio.ensure_future(mine.call(made.append, 1))
        await asyncio.sleep(0)
        second.cancel()
        gate.set()
        await asyncio.gather(first, second, return_exceptions=True)

    mine.run(main, stop=nothing)
    assert made == [1]


def test_no_thread_is_left() -> None:
    before = threading.active_count()

    async def main() -> None:
        await asyncio.sleep(0)

    bridge().run(main, stop=nothing)
    assert threading.active_count() == before

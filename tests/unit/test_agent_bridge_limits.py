"""The bridge when much is said, given up or interrupted."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tasks_app.agent.bridge import Bridge


def nothing(error: BaseException) -> None: ...


def test_ticks_come_however_much_there_is_to_do() -> None:
    """R2: the lease of an agent that never falls silent must be renewed all the same."""
    ticks: list[None] = []
    bridge = Bridge(tick=lambda: ticks.append(None), tick_seconds=0.01)

    async def main() -> None:
        while len(ticks) < 3:
            await bridge.call(lambda: None)

    bridge.run(main, stop=nothing)
    assert len(ticks) >= 3


def test_a_call_that_the_loop_gave_up_is_made_all_the_same() -> None:
    """What was seen of the agent is stored, also when the SDK is already tidying up."""
    bridge = Bridge(tick=lambda: None)
    made: list[str] = []
    gate = threading.Event()

    def first() -> None:
        assert gate.wait(30)

    async def main() -> str:
        blocking = asyncio.ensure_future(bridge.call(first))
        late = asyncio.ensure_future(bridge.call(made.append, "late"))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.sleep(0)
        gate.set()
        await blocking
        return "ended"

    assert bridge.run(main, stop=nothing) == "ended"
    assert made == ["late"]


def test_an_interrupt_of_the_callers_thread_stops_the_run() -> None:
    """Ctrl+C comes as an exception anywhere in the waiting thread."""
    stopped = threading.Event()

    def tick() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        while not stopped.is_set():
            await asyncio.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        Bridge(tick=tick, tick_seconds=0.01).run(main, stop=lambda error: stopped.set())

"""Which test modules use the processors most: `--cpu-seconds=25` shows 25 of them and the sum.

What a module uses is what its pytest worker and all processes below it have used between the module's begin
and its end, those that still run included. So a browser or a server that several modules share counts for the
module that makes it work. Missing is only what a process used that nobody waited for, such as orphans.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

COLLECTION = "(imports and collection)"
_TICKS = os.sysconf("SC_CLK_TCK")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-seconds",
        type=int,
        default=0,
        metavar="N",
        help="show the N test modules that used most CPU time, and the sum of all",
    )


def used() -> float:
    """Return the CPU seconds of this process and of those that it started, directly or not."""
    return sum(_family(os.getpid()), start=0.0) / _TICKS


def _family(pid: int) -> Iterator[int]:
    """Yield the ticks of a process and of each one below it, with those of the children it waited for."""
    ticks, children = {}, defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
        children[int(fields[1])].append(int(folder.name))
    pending = [pid]
    while pending:
        one = pending.pop()
        yield ticks.get(one, 0)
        pending += children[one]


class CpuTime:
    """A pytest plugin. Workers of xdist send their figures to the process that shows them."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._seconds: Counter[str] = Counter()
        self._before = 0.0

    def pytest_collection_finish(self) -> None:
        self._count(COLLECTION)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        done = yield
        if nextitem is None or nextitem.path != item.path:
            self._count(item.nodeid.partition("::")[0])
        return done

    def _count(self, module: str) -> None:
        now = used()
        self._seconds[module] += now - self._before  # type: ignore[assignment] # counters count floats, too
        self._before = now

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu_seconds"] = dict(self._seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._seconds.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("CPU seconds")
        for module, seconds in self._seconds.most_common(self._shown):
            terminalreporter.write_line(f"{seconds:7.1f}  {module}")
        total = sum(self._seconds.values())
        terminalreporter.write_line(f"{total:7.1f}  in {len(self._seconds)} modules and while collecting")

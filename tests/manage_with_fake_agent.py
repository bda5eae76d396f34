"""`manage.py` with the fake agent: for commands that are tested for what they show and read, and not for what
the real program does. A task's text names its script, as `rehearsal: NAME`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import django
from django.core.management import execute_from_command_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks_app.agent.port import Agent


def scripted_agent() -> Agent:
    from tests.agents import script_by_name
    from tests.fake_agent import FakeAgent

    return FakeAgent(script_by_name)


def main(make_agent: Callable[[], Agent] = scripted_agent) -> None:
    """Run the command line with another agent, which is made for each task."""
    django.setup()
    from tasks_app import composition
    from tasks_app.engine.stopping import StopSignal
    from tasks_app.engine.worker_context import WorkerContext
    from tasks_app.sandbox import Sandbox

    def worker_context(stop_signal: StopSignal) -> WorkerContext:
        return WorkerContext(make_agent(), Sandbox(None), stop_signal)

    composition.worker_context = worker_context
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()

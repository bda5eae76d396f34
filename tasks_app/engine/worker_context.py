"""What the work on a task is done with."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app.agent.port import Agent
from tasks_app.engine.stopping import StopSignal
from tasks_app.sandbox import Sandbox


@dataclass(frozen=True)
class Shop:
    """What the work is done with: the agent, the sandbox for checks and git, and the wish to stop.

    `rings`: whether a worker is told of the next task of a sequence; not by one who takes it up itself.
    """

    agent: Agent
    sandbox: Sandbox
    stop_signal: StopSignal
    rings: bool = True

"""The means of a worker: its agent, its sandbox, the signal to stop, its labels."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app.agent.port import Agent
from tasks_app.core.labels import Labels
from tasks_app.engine.stopping import StopSignal
from tasks_app.sandbox import Sandbox


@dataclass(frozen=True)
class WorkerContext:
    """The agent, the sandbox for checks and git, and the signal to stop.

    `queues_next` says whether the next task of a sequence goes to the queue. It is false for a process that
    takes up the next task itself.

    `labels` are those of the worker, which takes only tasks that need no others, and only within the limits
    of projects and people. None: a person chose the task for this process.
    """

    agent: Agent
    sandbox: Sandbox
    stop_signal: StopSignal
    queues_next: bool = True
    labels: Labels | None = None

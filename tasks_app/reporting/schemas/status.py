"""JSON models of `manage.py status --json`."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.core.labels import labels_and_toolchains
from tasks_app.models import WorkerBeat
from tasks_app.reporting.schemas.base import DateTime, Out
from tasks_app.reporting.schemas.sequences import SequenceOut
from tasks_app.reporting.schemas.tasks import TaskOut


class WorkerLimitOut(Out):
    """A limit of the agents and checks of a worker."""

    name: str = Field(description="What is limited.")
    value: str = Field(description="The limit.")
    enforced_by: str = Field(description="What enforces it; empty if nothing does.")


class WorkerOut(Out):
    """A running worker."""

    host: str = Field(description="The machine that it runs on.")
    pid: int = Field(description="The id of its process.")
    version: str = Field(description="The version of its code.")
    slots: int = Field(description="How many tasks it works on at once, at most.")
    busy: int = Field(description="How many tasks it works on now.")
    labels: list[str] = Field(description="What it has, as steps ask for it in runsOn.")
    toolchains: list[str] = Field(description="What it has of those that projects ask for in toolchains.")
    unsandboxed: str = Field(description="Why its agents have no sandbox; empty if they have one.")
    limits: list[WorkerLimitOut] = Field(description="Limits of each agent and check there.")
    problem: str = Field(description="Why it takes no tasks; empty if it does.")
    started: DateTime = Field(description="When it started.")
    seen: DateTime = Field(description="When it was heard of last.")

    @classmethod
    def of(cls, worker: WorkerBeat) -> Self:
        labels, toolchains = labels_and_toolchains(worker.labels)
        return cls(
            host=worker.host,
            pid=worker.pid,
            version=worker.version,
            slots=worker.slots,
            busy=worker.busy,
            labels=labels,
            toolchains=toolchains,
            unsandboxed=worker.unsandboxed,
            limits=[
                WorkerLimitOut(name=row.name, value=row.value, enforced_by=row.by)
                for row in worker.enforced_limits
            ],
            problem=worker.problem,
            started=worker.started_at,
            seen=worker.seen_at,
        )


class Status(Out):
    tasks: list[TaskOut] = Field(description="Tasks, what needs you first.")
    sequences: list[SequenceOut] = Field(description="Sequences, what needs you first.")
    workers: list[WorkerOut] = Field(description="The workers that live.")

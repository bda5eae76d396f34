"""JSON models of workers, the queue that they work on, and the status of all."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.config.task_file import PriorityName
from tasks_app.core.labels import labels_and_toolchains
from tasks_app.core.phases import Phase
from tasks_app.models import WorkerBeat
from tasks_app.models.task import priority_name
from tasks_app.permissions import Principal
from tasks_app.schemas.base import DateTime, Out, UserOut
from tasks_app.schemas.sequences import SequenceOut
from tasks_app.schemas.tasks import TaskOut
from tasks_app.services.workers.queue import Queue, QueuedTask, WaitsFor


class QueuedTaskOut(Out):
    """A task that waits."""

    task: int = Field(validation_alias="task.pk", description="The task's id.")
    name: str = Field(description="`project/slug`, as commands take it.")
    title: str = Field(validation_alias="task.title", description="Its title.")
    phase: Phase = Field(validation_alias="task.shown_phase", description="What it does or waits for.")
    created_by: UserOut | None = Field(
        validation_alias="task.created_by", description="Who created it; null if nobody is known."
    )
    priority: PriorityName = Field(description="Its priority.")
    queued_at: DateTime | None = Field(validation_alias="task.queued_at", description="When it was started.")
    position: int | None = Field(
        description="Its place among all tasks that are due, from 1; null if it cannot begin yet."
    )
    waits_for: WaitsFor = Field(
        description="worker, labels (a worker that has them, or its toolchains), project_limit, "
        "person_limit, reset, budget, fault (that passes by itself), or moment (it goes on within seconds)."
    )
    sentence: str = Field(description="The same for people.")

    @staticmethod
    def resolve_name(entry: QueuedTask) -> str:
        return f"{entry.task.project.name}/{entry.task.slug}"

    @staticmethod
    def resolve_priority(entry: QueuedTask) -> PriorityName:
        return priority_name(entry.task.priority)


class QueueOut(Out):
    """The queue: counts of all projects, and the tasks that you may see."""

    waiting: int = Field(description="Number of waiting tasks, including tasks that you may not see.")
    running: int = Field(description="Number of running tasks, including tasks that you may not see.")
    workers: int = Field(description="How many workers take tasks.")
    slots: int = Field(description="How many tasks they can work on at once.")
    busy: int = Field(description="How many they work on now.")
    items: list[QueuedTaskOut] = Field(description="What you may see, in the order of turns; 200 at most.")

    @classmethod
    def seen_by(cls, principal: Principal) -> Self:
        queue = Queue()
        return cls.from_row(
            queue.slots, waiting=queue.waiting, running=queue.running, items=queue.seen_by(principal)
        )


class WorkerLimitOut(Out):
    """A limit of the agents and checks of a worker."""

    name: str = Field(description="What is limited.")
    value: str = Field(description="The limit.")
    enforced_by: str = Field(validation_alias="by", description="What enforces it; empty if nothing does.")


class WorkerOut(Out):
    """A running worker."""

    host: str = Field(description="The machine that it runs on.")
    pid: int = Field(description="The id of its process.")
    version: str = Field(description="The version of its code.")
    slots: int = Field(description="How many tasks it works on at once, at most.")
    busy: int = Field(description="How many tasks it works on now.")
    labels: list[str] = Field(description="Its labels, which steps ask for in runsOn.")
    toolchains: list[str] = Field(description="Its toolchains, by the names that projects use in toolchains.")
    unsandboxed: str = Field(description="Why its agents have no sandbox; empty if they have one.")
    limits: list[WorkerLimitOut] = Field(
        validation_alias="enforced_limits", description="Limits of each agent and check there."
    )
    problem: str = Field(description="Why it takes no tasks; empty if it does.")
    started: DateTime = Field(validation_alias="started_at", description="When it started.")
    seen: DateTime = Field(validation_alias="seen_at", description="When it was heard of last.")

    @staticmethod
    def resolve_labels(worker: WorkerBeat) -> list[str]:
        return labels_and_toolchains(worker.labels)[0]

    @staticmethod
    def resolve_toolchains(worker: WorkerBeat) -> list[str]:
        return labels_and_toolchains(worker.labels)[1]


class Status(Out):
    tasks: list[TaskOut] = Field(description="Tasks, what needs you first.")
    sequences: list[SequenceOut] = Field(description="Sequences, what needs you first.")
    workers: list[WorkerOut] = Field(description="The workers that live.")

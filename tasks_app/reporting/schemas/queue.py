"""JSON models of the queue."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.config.task_file import PriorityName
from tasks_app.core.phases import Phase
from tasks_app.models.task import priority_name
from tasks_app.permissions import Principal
from tasks_app.reporting.queue import Queue, QueuedTask, WaitsFor
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none


class QueuedTaskOut(Out):
    """A task that waits."""

    task: int = Field(description="The task's id.")
    name: str = Field(description="`project/slug`, as commands take it.")
    title: str = Field(description="Its title.")
    phase: Phase = Field(description="What it does or waits for.")
    created_by: UserOut | None = Field(description="Who created it; null if nobody is known.")
    priority: PriorityName = Field(description="Its priority.")
    queued_at: DateTime | None = Field(description="When it was started.")
    position: int | None = Field(
        description="Its place among all tasks that are due, from 1; null if it cannot begin yet."
    )
    waits_for: WaitsFor = Field(
        description="worker, labels (a worker that has them, or its toolchains), project_limit, "
        "person_limit, reset, budget, fault (that passes by itself), or moment (it goes on within seconds)."
    )
    sentence: str = Field(description="The same for people.")

    @classmethod
    def of(cls, entry: QueuedTask) -> Self:
        task = entry.task
        return cls(
            task=task.pk,
            name=f"{task.project.name}/{task.slug}",
            title=task.title,
            phase=Phase(task.phase),
            created_by=user_or_none(task.created_by),
            priority=priority_name(task.priority),
            queued_at=task.queued_at,
            position=entry.position,
            waits_for=entry.waits_for,
            sentence=entry.sentence,
        )


class QueueOut(Out):
    """The queue: counts of all projects, and the tasks that you may see."""

    waiting: int = Field(description="How many tasks wait, also those that you may not see.")
    running: int = Field(description="How many tasks run, also those that you may not see.")
    workers: int = Field(description="How many workers take tasks.")
    slots: int = Field(description="How many tasks they can work on at once.")
    busy: int = Field(description="How many they work on now.")
    items: list[QueuedTaskOut] = Field(description="What you may see, in the order of turns; 200 at most.")

    @classmethod
    def seen_by(cls, principal: Principal) -> Self:
        queue = Queue()
        slots = queue.slots
        return cls(
            waiting=queue.waiting,
            running=queue.running,
            workers=slots.workers,
            slots=slots.slots,
            busy=slots.busy,
            items=[QueuedTaskOut.of(entry) for entry in queue.seen_by(principal)],
        )

"""The queue: where each task that waits stands, and what it waits for (M4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import inf

from django.db.models import Q

from tasks_app.core.amounts import moment_in_words
from tasks_app.core.fair_shares import Account, in_turn
from tasks_app.core.labels import Labels, labels_in_words
from tasks_app.core.phases import ANSWERED, Phase
from tasks_app.models import Task, WorkerBeat
from tasks_app.models.task import TaskQuerySet
from tasks_app.permissions import Principal, tasks_visible_to
from tasks_app.services.search import rows_in_order
from tasks_app.services.usage.cost_limits import budgets_of_tasks
from tasks_app.services.wait_sentences import fault_words
from tasks_app.services.workers.scheduling import (
    DueTask,
    TaskCounts,
    can_be_taken,
    due_tasks,
    tasks_worked_on,
    used_by,
    within_limits,
)

#: Tasks that a page or a response shows, at most.
MOST = 200
#: Due tasks from which on the line is long.
LONG = 500
#: For how long it is the same for all who look.
SHARED_SECONDS = 2.0
_ORDINALS = ("Next", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


class WaitsFor(StrEnum):
    """What a task waits for."""

    WORKER = "worker"  # a free slot
    LABELS = "labels"  # a worker with its labels and toolchains, and none runs
    PROJECT_LIMIT = "project_limit"
    PERSON_LIMIT = "person_limit"
    RESET = "reset"  # of a usage limit
    BUDGET = "budget"
    FAULT = "fault"  # that passes by itself
    MOMENT = "moment"  # it goes on within seconds


@dataclass(frozen=True)
class QueuedTask:
    """A task that waits. `position` counts the due tasks from 1; None if the task is not due."""

    task: Task
    position: int | None
    waits_for: WaitsFor
    reason: str

    @property
    def sentence(self) -> str:
        """The place in line, if it has one, and the reason."""
        if self.position is None:
            return self.reason
        place = dict(enumerate(_ORDINALS, start=1)).get(self.position, f"Number {self.position}")
        return f"{place} in line: {self.reason}"


@dataclass(frozen=True)
class Slots:
    """The capacity of all running workers together."""

    workers: int
    slots: int
    busy: int


@dataclass(frozen=True)
class Line:
    """The due tasks by their ids, with their positions, and what their people have used of workers."""

    due: dict[int, tuple[int, DueTask]]
    used: dict[Account, float]


class SharedLine:
    """The line of due tasks. A long one is read once for all who look within SHARED_SECONDS in this process.

    To know a position, all due tasks must be put in order. With thousands that takes a good part of a second,
    and each person who watches a waiting task would have it done.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line = Line({}, {})
        self._until = 0.0

    def read(self) -> Line:
        """Return the line. Raises DatabaseError."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._line = _read_line()
                self._until = 0.0
                if len(self._line.due) >= LONG:
                    self._until = time.monotonic() + SHARED_SECONDS
            return self._line

    def forget(self) -> None:
        """Read the line anew next time."""
        self._until = 0.0


def _read_line() -> Line:
    due = due_tasks()
    used = used_by(due)
    return Line({task.task_id: (n, task) for n, task in enumerate(in_turn(due, used), start=1)}, used)


LINE = SharedLine()


class Queue:
    """The queue at one moment. Each part is read once, when it is first needed."""

    @cached_property
    def _line(self) -> Line:
        return LINE.read()

    @property
    def due(self) -> dict[int, tuple[int, DueTask]]:
        """The due tasks by their ids, with their positions."""
        return self._line.due

    @cached_property
    def _counts(self) -> TaskCounts:
        return tasks_worked_on()

    @cached_property
    def _turns(self) -> tuple[dict[int, int], TaskCounts]:
        """The ids of the due tasks that may be worked on now, counted from 1, and the counts with them."""
        due, left = [task for _, task in self.due.values()], self._counts.copy()
        labels = [frozenset(worker.labels) for worker in self._taking]
        turns = within_limits(due, self._line.used, left, labels)
        return {task.task_id: number for number, task in enumerate(turns, start=1)}, left

    @cached_property
    def workers(self) -> list[WorkerBeat]:
        return list(WorkerBeat.objects.alive())

    @property
    def _taking(self) -> list[WorkerBeat]:
        return [worker for worker in self.workers if not worker.problem]

    @cached_property
    def waiting(self) -> int:
        """The number of waiting tasks of all projects."""
        return _waiting(Task.objects.all()).count()

    @cached_property
    def running(self) -> int:
        """The number of tasks that a worker works on; tasks that lost their worker are waiting."""
        return Task.objects.in_phases(Phase.RUNNING).count()

    @property
    def slots(self) -> Slots:
        slots, busy = (sum(getattr(one, name) for one in self._taking) for name in ("slots", "busy"))
        return Slots(len(self._taking), slots, busy)

    def seen_by(self, principal: Principal, *, most: int = MOST) -> list[QueuedTask]:
        """Return the waiting tasks that the principal may see: due ones in line, then the others."""
        ids = self.in_line(_waiting(tasks_visible_to(principal)))[:most]
        rows = Task.objects.select_related("project", "created_by", "sequence").defer("text", "body")
        tasks = rows_in_order(rows, ids)
        spent = _spent_budgets(tasks, principal)
        return [self.entry(task, spent.get(task.pk, "")) for task in tasks]

    def in_line(self, waiting: TaskQuerySet) -> list[int]:
        """Return the ids of these tasks that wait: due ones in line, then the others."""
        due, not_due = self.due, (inf, None)  # these follow in the order of the query
        ids = waiting.order_by("queued_at", "pk").values_list("pk", flat=True)
        return sorted(ids, key=lambda pk: due.get(pk, not_due)[0])

    def count_seen_by(self, principal: Principal) -> int:
        return _waiting(tasks_visible_to(principal)).count()

    def entry(self, task: Task, spent_budgets: str) -> QueuedTask:
        """Return where the task stands. `spent_budgets` says which ones are spent, if it waits for them."""
        if task.pk not in self.due:
            return QueuedTask(task, None, *_not_due(task, spent_budgets))
        position, due = self.due[task.pk]
        waits_for, words = self._what(task, due)
        return QueuedTask(task, position, waits_for, f"{words}.")

    def _what(self, task: Task, due: DueTask) -> tuple[WaitsFor, str]:
        labels = due.labels
        if due.awaited_hosts:
            where, cannot = " or ".join(due.awaited_hosts), " and ".join(task.left_by)
            words = f"waits for a worker on {where}, which takes no tasks now"
            return WaitsFor.WORKER, f"{words}; {cannot} cannot fetch its submodules"
        if not self._taking or not can_be_taken(labels, [frozenset(one.labels) for one in self._taking]):
            return self._which_worker(labels, task.left_by)
        turns, left = self._turns
        if due.task_id in turns:
            return self._which_worker(labels, task.left_by, turns[due.task_id])
        if left.project_is_full(due):
            words = _limit_words(self._counts.of_project[due.project], due.project_limit)
            return WaitsFor.PROJECT_LIMIT, f"its project {words}"
        words = _limit_words(self._counts.of_person[due.person], self._counts.per_person)
        who = task.created_by.shown_name if task.created_by else "its creator"
        return WaitsFor.PERSON_LIMIT, f"{who} {words}"

    def _which_worker(self, labels: Labels, left_by: list[str], turn: int = 1) -> tuple[WaitsFor, str]:
        worker = "worker"
        if labels:
            worker = f"worker with {labels_in_words(labels)}"
        if not self.workers:
            return WaitsFor.WORKER, f"waits for a {worker}, and no worker is running"
        if not self._taking:
            return WaitsFor.WORKER, f"waits for a {worker}, and no worker takes tasks"
        able = [one for one in self._taking if labels <= frozenset(one.labels)]
        if not able:
            return WaitsFor.LABELS, f"waits for a {worker}, and none is running"
        able = [one for one in able if one.host not in left_by] or able
        if turn <= sum(max(one.slots - one.busy, 0) for one in able):
            return WaitsFor.WORKER, f"waits for a {worker}, which will take it within seconds"
        return WaitsFor.WORKER, f"waits for a free {worker}"


def queue_sentence(task: Task, viewer: Principal | None = None) -> str:
    """Return where a task stands in the queue and what it waits for; "" if it does not wait there.

    Without a viewer, what only some users may see is left out.
    """
    if not _waiting(Task.objects.filter(pk=task.pk)).exists():
        return ""
    queue = Queue()
    if task.pk not in queue.due and Task.objects.due().filter(pk=task.pk).exists():
        LINE.forget()  # it became due since others looked
        queue = Queue()
    return queue.entry(task, _spent_budgets([task], viewer).get(task.pk, "")).sentence


def _spent_budgets(tasks: Collection[Task], viewer: Principal | None) -> dict[int, str]:
    """Return which budgets are spent, in words for the viewer, by the ids of the tasks that wait for them."""
    waiting = [task for task in tasks if task.phase == Phase.WAITING_FOR_RESET and task.waits_for_budget]
    return {task_id: budgets.problem(viewer) for task_id, budgets in budgets_of_tasks(waiting).items()}


def _waiting(tasks: TaskQuerySet) -> TaskQuerySet:
    """Return tasks that wait for anything but a person, also running ones that lost their worker."""
    started = Q(phase=Phase.PENDING, queued_at__isnull=False) | Q(phase=Phase.WAITING_FOR_RESET)
    return tasks.filter(started) | tasks.without_worker()


def _limit_words(running: int, limit: int | None) -> str:
    if limit is None or running >= limit:
        return f"has {running} of {limit} tasks running"
    return f"may have {limit} task{'' if limit == 1 else 's'} running, and earlier ones come first"


def _not_due(task: Task, spent_budgets: str) -> tuple[WaitsFor, str]:
    """Return what a task waits for that cannot begin now."""
    if fault := fault_words(task):
        return WaitsFor.FAULT, fault
    if task.phase == Phase.WAITING_FOR_RESET and task.resets_at:
        until = f"until {moment_in_words(task.resets_at)}"
        if task.waits_for_budget:
            what = f"{spent_budgets} Waits {until}," if spent_budgets else f"Waits for a budget, {until}"
            return WaitsFor.BUDGET, f"{what} or until it is raised."
        return WaitsFor.RESET, f"Waits for the usage limit to reset, {until}."
    if task.can_be_undone:
        return WaitsFor.MOMENT, ANSWERED.sentence
    return WaitsFor.MOMENT, "A worker is taking it."

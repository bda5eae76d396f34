"""Whose turn it is: fair shares between people, then between the projects of each (M4).

Everybody is due the same share of the workers' time. Who has used less of it than others is in deficit, and
the person with the largest deficit has the next turn. So a person with one task does not wait behind somebody
else's five hundred, and with many people each waits for at most one turn of every other one, then is served.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

#: A person, or None for tasks whose creator was removed; and a project.
Person = int | None
Account = tuple[Person, int]

#: Seconds that a turn is charged with, until it is known how long it takes.
TURN_SECONDS = 300.0
#: By how many seconds a task of another priority than normal is put forward, or back, among other people's.
#: A constant head start, not a larger share: what was used by it counts as any other use.
HEAD_START_SECONDS = 600.0


@dataclass(frozen=True)
class WaitingTask:
    """A task that waits for a worker. A higher `priority` comes first among the tasks of a person.

    `started`: it goes on after an answer or a pause, which comes before a task that has not begun.
    `lost_its_worker`: it has had its turn, was charged for it, and was interrupted.
    """

    task_id: int
    person: Person
    project: int
    since: datetime
    priority: int = 0
    started: bool = False
    lost_its_worker: bool = False

    @property
    def rank(self) -> tuple[int, bool, datetime, int]:
        """The order among the tasks of one person in one project."""
        return -self.priority, not self.started, self.since, self.task_id


Waiting = TypeVar("Waiting", bound=WaitingTask)


class _Queue(Generic[Waiting]):
    """The waiting tasks of one person, in one list per project."""

    def __init__(self, person: Person, tasks: Iterable[Waiting], used: Mapping[Account, float]) -> None:
        self._projects: dict[int, list[Waiting]] = defaultdict(list)
        for task in tasks:
            self._projects[task.project].append(task)
        for waiting in self._projects.values():
            waiting.sort(key=lambda task: task.rank, reverse=True)  # the next one is the last of the list
        self._used = {project: used.get((person, project), 0.0) for project in self._projects}
        self._all_used = sum(seconds for (whose, _), seconds in used.items() if whose == person)

    def __bool__(self) -> bool:
        return bool(self._projects)

    @property
    def _next_project(self) -> int:
        return min(self._projects, key=self._project_key)

    def _project_key(self, project: int) -> tuple[int, float, datetime, int]:
        first = self._projects[project][-1]
        return -first.priority, self._used[project], first.since, project

    def key(self) -> tuple[float, datetime, int]:
        """The person with the least of this is next."""
        first = self._projects[self._next_project][-1]
        return self._all_used - first.priority * HEAD_START_SECONDS, first.since, first.task_id

    def pop(self) -> Waiting:
        """Remove and return the next task."""
        project = self._next_project
        task = self._projects[project].pop()
        if not self._projects[project]:
            del self._projects[project]
        return task

    def charge(self, project: int) -> None:
        """Charge the person and the project with a turn."""
        self._used[project] += TURN_SECONDS
        self._all_used += TURN_SECONDS


def in_turn(
    waiting: Iterable[Waiting],
    used: Mapping[Account, float],
    may_begin: Callable[[Waiting], bool] = lambda task: True,
) -> Iterator[Waiting]:
    """Yield the waiting tasks in the order of their turns.

    `used` says how many seconds of workers each person has lately used in each project, with a TURN_SECONDS
    for each task that is worked on now. `may_begin` is asked about each task once, in their order. A task
    that may not begin is left out, and costs its person no turn. Nothing else is read, so the same arguments
    give the same order.

    Tasks that lost their worker come first and cost no second turn: they are still said to run, and new tasks
    must not keep them waiting, however often workers die.
    """
    by_person: dict[Person, list[Waiting]] = defaultdict(list)
    interrupted: list[Waiting] = []
    for task in waiting:
        (interrupted if task.lost_its_worker else by_person[task.person]).append(task)
    interrupted.sort(key=lambda task: (task.since, task.task_id))
    yield from (task for task in interrupted if may_begin(task))
    queues = {person: _Queue(person, tasks, used) for person, tasks in by_person.items()}
    heap = [(queue.key(), index, queue) for index, queue in enumerate(queues.values())]
    heapq.heapify(heap)
    while heap:
        _, index, queue = heapq.heappop(heap)
        task = queue.pop()
        if may_begin(task):
            queue.charge(task.project)
            yield task
        if queue:
            heapq.heappush(heap, (queue.key(), index, queue))

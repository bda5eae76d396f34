"""M4: whose turn it is. A person with one task does not wait behind another's many; nobody starves."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.core.fair_shares import HEAD_START_SECONDS, TURN_SECONDS, Account, WaitingTask, in_turn
from tasks_app.core.labels import Labels
from tasks_app.services.workers.scheduling import DueTask, TaskCounts, turns_of_worker, within_limits

START = datetime(2026, 5, 4, tzinfo=UTC)


def waiting(
    task_id: int, person: int | None = 1, project: int = 1, *, minutes: float = 0, **fields: object
) -> WaitingTask:
    since = START + timedelta(minutes=minutes)
    return WaitingTask(task_id, person, project, since, **fields)  # type: ignore[arg-type]


def order(*tasks: WaitingTask, used: dict[Account, float] | None = None) -> list[int]:
    return [task.task_id for task in in_turn(tasks, used or {})]


def test_m4_tasks_of_one_person_in_one_project_have_the_order_in_which_they_were_started() -> None:
    assert order(waiting(1, minutes=2), waiting(2, minutes=1), waiting(3, minutes=3)) == [2, 1, 3]


def test_m4_one_task_of_a_person_does_not_wait_behind_many_of_another() -> None:
    many = [waiting(n, person=1, minutes=0) for n in range(1, 501)]
    assert order(*many, waiting(999, person=2, minutes=60)).index(999) == 1


def test_m4_whoever_has_used_less_is_next() -> None:
    used: dict[Account, float] = {(1, 1): 900.0, (2, 2): 100.0}
    assert order(waiting(1, 1, 1), waiting(2, 2, 2, minutes=9), used=used) == [2, 1]


def test_m4_a_person_s_turns_are_shared_between_the_person_s_projects() -> None:
    tasks = [waiting(n, project=1, minutes=n) for n in range(1, 5)]
    assert order(*tasks, waiting(9, project=2, minutes=9)) == [1, 9, 2, 3, 4]
    assert order(*tasks, waiting(9, project=2, minutes=9), used={(1, 1): 50.0})[0] == 9


def test_m4_what_goes_on_after_an_answer_comes_before_what_has_not_begun() -> None:
    assert order(waiting(1), waiting(2, minutes=5, started=True)) == [2, 1]


def test_r2_what_lost_its_worker_comes_before_all_others_and_costs_no_second_turn() -> None:
    """However often workers die: it is still said to run, and others wait for their first turn."""
    used: dict[Account, float] = {(1, 1): 9000.0}
    lost = [waiting(n, minutes=9 - n, priority=-1, lost_its_worker=True) for n in (7, 8)]
    new = [waiting(1, 2, 2, priority=1), waiting(2, 3, 3), waiting(3, 1, 1), waiting(4, 4, 4)]
    assert order(*new, *lost, used=used)[:2] == [8, 7]
    assert order(*new, *lost, used=used)[2:] == order(*new, used=used)


def test_m4_priority_orders_the_tasks_of_a_person_across_projects() -> None:
    tasks = [waiting(1, priority=-1), waiting(2), waiting(3, project=2, priority=1), waiting(4, started=True)]
    assert order(*tasks) == [3, 4, 2, 1]


def test_m4_priority_is_a_head_start_among_people_and_no_larger_share() -> None:
    """With 100 tasks of high priority somebody gets two turns more than another person, not all."""
    high = [waiting(n, person=1, priority=1) for n in range(100)]
    normal = [waiting(1000 + n, person=2, minutes=1) for n in range(100)]
    first = order(*high, *normal)[:40]
    ahead = round(HEAD_START_SECONDS / TURN_SECONDS)
    assert sum(task < 1000 for task in first) - sum(task >= 1000 for task in first) == ahead
    assert order(*high, waiting(5000, person=3, minutes=1)).index(5000) <= ahead + 1


def test_m4_tasks_of_removed_people_are_served_as_those_of_one_more_person() -> None:
    assert order(waiting(1, None), waiting(2, None), waiting(3, 1, minutes=1)) == [1, 3, 2]


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 1, 2, 3]), st.integers(1, 3), st.integers(-1, 1), st.booleans()),
        max_size=40,
    ),
    st.dictionaries(st.tuples(st.sampled_from([None, 1, 2, 3]), st.integers(1, 3)), st.floats(0, 9999)),
)
def test_m4_every_task_has_exactly_one_turn(
    rows: list[tuple[int | None, int, int, bool]], used: dict[Account, float]
) -> None:
    tasks = [
        waiting(n, person, project, minutes=n, priority=priority, started=started)
        for n, (person, project, priority, started) in enumerate(rows)
    ]
    assert sorted(order(*tasks, used=used)) == list(range(len(tasks)))
    assert order(*reversed(tasks), used=used) == order(*tasks, used=used)


@dataclass
class Simulation:
    """Workers and people with a counted clock: nothing here takes time.

    The portal's own functions decide at each free slot, from what was used within the last hour.
    """

    #: The labels of each slot; `later` comes one more, at that second.
    slots: list[Labels]
    arrivals: list[tuple[float, DueTask, float]]  # when, which task, how long it will take
    per_person: int | None = None
    later: tuple[float, Labels] = (math.inf, frozenset())
    queue: dict[int, DueTask] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    turns_before: dict[int, int] = field(default_factory=dict)
    most_of_project: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    most_of_person: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))
    _takes: dict[int, float] = field(default_factory=dict)
    _running: list[tuple[float, int, DueTask, Labels]] = field(default_factory=list)
    _past: list[tuple[float, float, Account]] = field(default_factory=list)

    def run(self) -> None:
        pending = sorted(self.arrivals, key=lambda arrival: (arrival[0], arrival[1].task_id))
        now, turns_at_arrival = 0.0, {}
        free = list(self.slots)
        while pending or self._running or (self.queue and now < self.later[0] < math.inf):
            while pending and pending[0][0] <= now:
                _, task, takes = pending.pop(0)
                self.queue[task.task_id], self._takes[task.task_id] = task, takes
                turns_at_arrival[task.task_id] = len(self.started)
            if self.later[0] <= now and self.later[1] not in self.slots:
                self.slots.append(self.later[1])
                free.append(self.later[1])
            while found := self._next_turn(free, now):
                slot, task = found
                self.turns_before[task.task_id] = len(self.started) - turns_at_arrival[task.task_id]
                self._start(task, slot, now)
                free.remove(slot)
            events = [*(one[0] for one in self._running[:1]), *(one[0] for one in pending[:1])]
            now = min([*events, *([self.later[0]] if self.later[0] > now else [])], default=now)
            while self._running and self._running[0][0] <= now:
                free.append(heapq.heappop(self._running)[3])

    def _next_turn(self, free: list[Labels], now: float) -> tuple[Labels, DueTask] | None:
        """Return the first free slot that finds a task, as the worker finds it."""
        if not free or not self.queue:
            return None
        used = self._used(now)
        turns = list(within_limits(self.queue.values(), used, self._counts(), self.slots))
        for slot in dict.fromkeys(free):
            if own := turns_of_worker(slot, turns, used):
                return slot, own[0]
        return None

    def _start(self, task: DueTask, slot: Labels, now: float) -> None:
        del self.queue[task.task_id]
        self.started[task.task_id] = now
        ends = now + self._takes[task.task_id]
        heapq.heappush(self._running, (ends, task.task_id, task, slot))
        self._past.append((now, ends, (task.person, task.project)))
        running = self._counts()
        project, person = task.project, task.person
        self.most_of_project[project] = max(self.most_of_project[project], running.of_project[project])
        self.most_of_person[person] = max(self.most_of_person[person], running.of_person[person])

    def _counts(self) -> TaskCounts:
        running = TaskCounts(self.per_person)
        for _, _, task, _ in self._running:
            running.of_project[task.project] += 1
            running.of_person[task.person] += 1
        return running

    def _used(self, now: float) -> dict[Account, float]:
        used: dict[Account, float] = defaultdict(float)
        for begun, ends, account in self._past:
            if begun > now - 3600:
                used[account] += min(ends, now) - begun
            if ends > now:
                used[account] += TURN_SECONDS
        return used


PEOPLE = 50
#: Person 1 starts this many tasks at once, before anybody else.
MANY = 500
#: The project that everybody shares.
SHARED = 100
GPU, ARM = frozenset({"gpu"}), frozenset({"arm"})
PLAIN: Labels = frozenset()


def a_day() -> list[tuple[float, DueTask, float]]:
    """1,000 tasks of 50 people: 500 of person 1 at once, 10 people with a single one, the others spread."""
    draw = random.Random(4)  # noqa: S311 - the same day each time
    arrivals = [(0.0, 1) for _ in range(MANY)]
    arrivals += [(draw.uniform(60, 3 * 3600), person) for person in range(2, 12)]
    arrivals += [(draw.uniform(0, 4 * 3600), draw.randint(12, PEOPLE)) for _ in range(1000 - MANY - 10)]
    return [
        (
            when,
            DueTask(
                number,
                person,
                draw.choice((person, SHARED)),
                since=START + timedelta(seconds=when),
                priority=draw.choice((-1, 0, 0, 1)),
            ),
            draw.lognormvariate(5.7, 0.8),  # median 5 min, some half an hour
        )
        for number, (when, person) in enumerate(arrivals)
    ]


def a_day_with_limits_and_labels() -> list[tuple[float, DueTask, float]]:
    """The same day: the shared project has a limit, every eighth task needs `gpu`, every fiftieth `arm`."""

    def labels(number: int) -> Labels:
        return ARM if number % 50 == 0 else GPU if number % 8 == 0 else PLAIN

    return [
        (when, replace(task, labels=labels(n), project_limit=6 if task.project == SHARED else None), takes)
        for n, (when, task, takes) in enumerate(a_day())
    ]


def minutes_waited(day: Simulation) -> dict[int | None, list[float]]:
    """Return how long the tasks of each person waited, without those that no worker could take."""
    waits: dict[int | None, list[float]] = defaultdict(list)
    for when, task, _ in day.arrivals:
        if task.labels != ARM:
            waits[task.person].append((day.started[task.task_id] - when) / 60)
    return waits


def in_words(minutes: list[float]) -> str:
    p90 = quantiles(minutes, n=10)[-1] if len(minutes) > 1 else minutes[0]
    return f"{len(minutes)} tasks waited {median(minutes):.1f} min (median), {p90:.1f} min (p90)"


def report(name: str, day: Simulation, record_property: Callable[[str, object], None]) -> None:
    """Report how long person 1 waited, those with a single task, and all others."""
    waits = minutes_waited(day)
    for who, people in (
        ("the person with 500 tasks", [1]),
        ("ten people with one task", range(2, 12)),
        ("the others", range(12, PEOPLE + 1)),
    ):
        record_property("measured", f"{name}, {who}: {in_words([m for one in people for m in waits[one]])}")


def test_m4_a_simulated_day_of_a_thousand_tasks_of_fifty_people_starves_nobody(
    record_property: Callable[[str, object], None],
) -> None:
    day = Simulation([PLAIN] * 16, a_day())
    day.run()
    assert len(day.started) == 1000, "every task has had its turn"
    report("simulated day", day, record_property)
    waits = minutes_waited(day)
    others = [wait for person, minutes in waits.items() if person != 1 for wait in minutes]
    for _, task, _ in day.arrivals:
        if task.person in range(2, 12):
            assert day.turns_before[task.task_id] < PEOPLE, "at most one turn of each other person before"
    assert median(others) < median(waits[1]) / 10
    assert max(others) < max(waits[1])


@pytest.mark.long
def test_m4_limits_and_labels_starve_nobody_in_the_simulated_day(
    record_property: Callable[[str, object], None],
) -> None:
    """For the first five hours no worker has `arm`: then what needs it changes nothing for anybody else."""
    arrivals, arm_comes = a_day_with_limits_and_labels(), 5 * 3600.0
    slots = [GPU] * 4 + [PLAIN] * 12
    day = Simulation([*slots], arrivals, per_person=8, later=(arm_comes, ARM))
    without = Simulation([*slots], [one for one in arrivals if one[1].labels != ARM], per_person=8)
    day.run()
    without.run()
    report("simulated day with limits and labels", day, record_property)
    assert len(day.started) == 1000, "every task has had its turn"
    assert day.most_of_project[SHARED] == 6 and max(day.most_of_person.values()) == 8, (
        "and no limit was exceeded"
    )
    for _, task, _ in day.arrivals:
        if task.person in range(2, 12) and task.labels != ARM:
            assert day.turns_before[task.task_id] < PEOPLE
    waits = minutes_waited(day)
    assert max(wait for person, minutes in waits.items() if person != 1 for wait in minutes) < max(waits[1])
    first = {task: when for task, when in day.started.items() if when < arm_comes}
    assert first == {task: when for task, when in without.started.items() if when < arm_comes}

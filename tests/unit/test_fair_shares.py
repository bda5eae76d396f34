"""M4: whose turn it is. A person with one task does not wait behind another's many; nobody starves."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles

from hypothesis import given
from hypothesis import strategies as st

from tasks_app.core.fair_shares import HEAD_START_SECONDS, TURN_SECONDS, Account, WaitingTask, in_turn

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

    `in_turn` decides at each free slot, from what was used within the last hour, as a portal does.
    """

    slots: int
    arrivals: list[tuple[float, WaitingTask, float]]  # when, which task, how long it will take
    queue: dict[int, WaitingTask] = field(default_factory=dict)
    started: dict[int, float] = field(default_factory=dict)
    turns_before: dict[int, int] = field(default_factory=dict)
    _takes: dict[int, float] = field(default_factory=dict)
    _running: list[tuple[float, int]] = field(default_factory=list)
    _past: list[tuple[float, float | None, Account, int]] = field(default_factory=list)

    def run(self) -> None:
        pending = sorted(self.arrivals, key=lambda arrival: (arrival[0], arrival[1].task_id))
        now, turns, turns_at_arrival = 0.0, 0, {}
        while pending or self._running or self.queue:
            while pending and pending[0][0] <= now:
                _, task, takes = pending.pop(0)
                self.queue[task.task_id], self._takes[task.task_id] = task, takes
                turns_at_arrival[task.task_id] = turns
            while self.queue and len(self._running) < self.slots:
                task = next(in_turn(self.queue.values(), self._used(now)))
                self._start(task, now)
                self.turns_before[task.task_id] = turns - turns_at_arrival[task.task_id]
                turns += 1
            now = min([*(when for when, _ in self._running[:1]), *(when for when, *_ in pending[:1])])
            while self._running and self._running[0][0] <= now:
                heapq.heappop(self._running)

    def _start(self, task: WaitingTask, now: float) -> None:
        del self.queue[task.task_id]
        self.started[task.task_id] = now
        ends = now + self._takes[task.task_id]
        heapq.heappush(self._running, (ends, task.task_id))
        self._past.append((now, ends, (task.person, task.project), task.task_id))

    def _used(self, now: float) -> dict[Account, float]:
        used: dict[Account, float] = defaultdict(float)
        for begun, ends, account, _ in self._past:
            if begun > now - 3600:
                used[account] += min(ends or now, now) - begun
            if ends is not None and ends > now:
                used[account] += TURN_SECONDS
        return used


PEOPLE = 50
#: Person 1 starts this many tasks at once, before anybody else.
MANY = 500


def a_day() -> list[tuple[float, WaitingTask, float]]:
    """1,000 tasks of 50 people: 500 of person 1 at once, 10 people with a single one, the others spread."""
    draw = random.Random(4)  # noqa: S311 - the same day each time
    arrivals = [(0.0, 1) for _ in range(MANY)]
    arrivals += [(draw.uniform(60, 3 * 3600), person) for person in range(2, 12)]
    arrivals += [(draw.uniform(0, 4 * 3600), draw.randint(12, PEOPLE)) for _ in range(1000 - MANY - 10)]
    return [
        (
            when,
            waiting(
                number,
                person,
                draw.choice((person, 100)),
                minutes=when / 60,
                priority=draw.choice((-1, 0, 0, 1)),
            ),
            draw.lognormvariate(5.7, 0.8),  # median 5 min, some half an hour
        )
        for number, (when, person) in enumerate(arrivals)
    ]


def test_m4_a_simulated_day_of_a_thousand_tasks_of_fifty_people_starves_nobody(
    record_property: Callable[[str, object], None],
) -> None:
    day = Simulation(slots=16, arrivals=a_day())
    day.run()
    assert len(day.started) == 1000, "every task has had its turn"
    waits: dict[int | None, list[float]] = defaultdict(list)
    turns: dict[int | None, list[int]] = defaultdict(list)
    for when, task, _ in day.arrivals:
        waits[task.person].append((day.started[task.task_id] - when) / 60)
        turns[task.person].append(day.turns_before[task.task_id])
    for person, minutes in sorted(waits.items(), key=lambda item: item[0] or 0):
        p90 = quantiles(minutes, n=10)[-1] if len(minutes) > 1 else minutes[0]
        line = f"{len(minutes)} tasks, waited {median(minutes):.1f} min (median), {p90:.1f} min (p90)"
        record_property(f"person {person}", line)
    others = [wait for person, minutes in waits.items() if person != 1 for wait in minutes]
    record_property("the others", f"{median(others):.1f} min, {quantiles(others, n=10)[-1]:.1f} min (p90)")
    for person in range(2, 12):
        assert max(turns[person]) < PEOPLE, "at most one turn of each other person comes before a single task"
    assert median(others) < median(waits[1]) / 10
    assert max(others) < max(waits[1])

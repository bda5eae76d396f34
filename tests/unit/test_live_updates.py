"""What open browsers are sent, and that nothing is sent twice, forgotten or piled up (W3)."""

from __future__ import annotations

from tasks_app.web.live.consumers import MOST_WAITING, SendQueue, Visibility
from tasks_app.web.live.updates import GAP_LIMIT, GAP_SECONDS, ChangeRow, SeenChanges, TaskUpdate, coalesce


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def changes(*ids: int) -> list[ChangeRow]:
    return [ChangeRow(id, task_id=1, project_id=1, kind="phase") for id in ids]


def update(task_id: int, *, project_id: int = 1, upto: int = 1) -> TaskUpdate:
    return TaskUpdate(task_id, project_id, frozenset({"phase"}), upto)


def test_changes_of_one_task_become_one_update_up_to_the_newest() -> None:
    rows = [
        ChangeRow(7, 1, 3, "events"),
        ChangeRow(8, 2, 3, "task"),
        ChangeRow(9, 1, 3, "phase"),
        ChangeRow(10, 1, 3, "events"),
    ]

    assert [item.as_message() for item in coalesce(rows)] == [
        {"task": 1, "kinds": ["events", "phase"], "upto": 10},
        {"task": 2, "kinds": ["task"], "upto": 8},
    ]


def test_skipped_ids_are_looked_for_again_until_they_come() -> None:
    seen = SeenChanges(Clock())
    seen.add(changes(1, 2, 5))
    assert (seen.last, seen.gaps()) == (5, [3, 4])

    seen.add(changes(3, 6))

    assert (seen.last, seen.gaps()) == (6, [4])


def test_skipped_ids_that_never_come_are_given_up() -> None:
    clock = Clock()
    seen = SeenChanges(clock)
    seen.add(changes(1, 3))

    clock.now += GAP_SECONDS + 1

    assert seen.gaps() == []


def test_a_jump_of_the_ids_leaves_a_bounded_number_of_gaps() -> None:
    seen = SeenChanges(Clock())
    seen.add(changes(1, 10_000_000))

    assert len(seen.gaps()) == GAP_LIMIT


def test_a_browser_gets_only_updates_of_projects_that_its_user_sees() -> None:
    queue = SendQueue(Clock())
    queue.put([update(1, project_id=1, upto=8), update(2, project_id=2), update(3, project_id=1, upto=4)])

    messages = queue.take(Visibility(frozenset({1}), looked_up_at=200.0))

    assert [message["task"] for message in messages] == [3, 1], "the oldest changes come first"
    assert not queue


def test_a_visibility_from_before_the_update_does_not_count() -> None:
    """Somebody who became a member a moment ago misses nothing."""
    queue = SendQueue(Clock())
    queue.put([update(1)])
    assert queue.take(Visibility(frozenset(), looked_up_at=99.0)) == []
    assert queue

    assert [message["task"] for message in queue.take(Visibility(frozenset({1}), looked_up_at=101.0))] == [1]


def test_a_browser_that_reads_nothing_fills_no_memory_and_refreshes_later() -> None:
    queue = SendQueue(Clock())
    for task in range(MOST_WAITING + 1):
        queue.put([update(task)] * 3)

    assert queue.take(Visibility(frozenset({1}), looked_up_at=200.0)) == [{"refresh": True}]
    assert not queue

"""What open browsers are told, and that nothing is told twice, forgotten or piled up (W3)."""

from __future__ import annotations

from tasks_app.web.live.send_queue import LIMIT, Outbox
from tasks_app.web.live.updates import GAP_LIMIT, GAP_SECONDS, Ledger, News, Notice, coalesce
from tasks_app.web.live.visibility import Access


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def news(*ids: int) -> list[News]:
    return [News(id, task=1, project=1, kind="phase") for id in ids]


def notice(task: int, *, project: int = 1, kind: str = "phase", upto: int = 1) -> Notice:
    return Notice(task, project, frozenset({kind}), upto)


def test_news_of_one_task_become_one_notice_up_to_the_newest() -> None:
    rows = [News(7, 1, 3, "events"), News(8, 2, 3, "task"), News(9, 1, 3, "phase"), News(10, 1, 3, "events")]

    assert [item.frame() for item in coalesce(rows)] == [
        {"task": 1, "kinds": ["events", "phase"], "upto": 10},
        {"task": 2, "kinds": ["task"], "upto": 8},
    ]


def test_skipped_ids_are_looked_for_again_until_they_come() -> None:
    ledger = Ledger(Clock())
    ledger.admit(news(1, 2, 5))
    assert (ledger.last, ledger.gaps()) == (5, [3, 4])

    ledger.admit(news(3, 6))

    assert (ledger.last, ledger.gaps()) == (6, [4])


def test_skipped_ids_that_never_come_are_given_up() -> None:
    clock = Clock()
    ledger = Ledger(clock)
    ledger.admit(news(1, 3))

    clock.now += GAP_SECONDS + 1

    assert ledger.gaps() == []


def test_a_jump_of_the_ids_leaves_a_bounded_number_of_gaps() -> None:
    ledger = Ledger(Clock())
    ledger.admit(news(1, 10_000_000))

    assert len(ledger.gaps()) == GAP_LIMIT


def test_a_browser_gets_only_notices_of_projects_that_its_user_sees() -> None:
    outbox = Outbox(Clock())
    outbox.put([notice(1, project=1, upto=8), notice(2, project=2), notice(3, project=1, upto=4)])

    frames = outbox.take(Access(frozenset({1}), at=200.0))

    assert [frame["task"] for frame in frames] == [3, 1], "the oldest news come first"
    assert not outbox


def test_a_denial_from_before_the_notice_does_not_count() -> None:
    """Somebody who became a member a moment ago misses nothing."""
    outbox = Outbox(Clock())
    outbox.put([notice(1)])
    assert outbox.take(Access(frozenset(), at=99.0)) == []
    assert outbox

    assert [frame["task"] for frame in outbox.take(Access(frozenset({1}), at=101.0))] == [1]


def test_a_browser_that_reads_nothing_fills_no_memory_and_refreshes_later() -> None:
    outbox = Outbox(Clock())
    for task in range(LIMIT + 1):
        outbox.put([notice(task)] * 3)

    assert outbox.take(Access(frozenset({1}), at=200.0)) == [{"refresh": True}]
    assert not outbox

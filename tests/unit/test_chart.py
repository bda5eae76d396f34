"""The chart of the usage page: its lines, its labels, and amounts of any size (W2, W7)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tasks_app.web.rendering.words import amount_of_dollars
from tasks_app.web.usage import PLOT, TOP, Chart, nice_step, stacked


def chart(*amounts: float, labels: int = 6) -> Chart:
    buckets = [(f"s{number}", f"full {number}") for number in range(len(amounts))]
    drawn = stacked(buckets, {"only": amounts}, amount_of_dollars, labels=labels)
    assert drawn
    return drawn


@pytest.mark.parametrize("highest", [0.000001, 0.0042, 0.3, 1, 1.01, 9.99, 10, 12345, 3e9])
def test_there_are_a_few_round_lines_and_the_bars_stay_below_the_last(highest: float) -> None:
    drawn = chart(highest)
    assert 3 <= len(drawn.ticks) <= 6
    assert drawn.ticks[0] == (f"{TOP + PLOT:.1f}", "$0")
    assert len({text for _, text in drawn.ticks}) == len(drawn.ticks)
    bar = drawn.stacks[0].bars[0]
    assert float(bar.y) >= TOP and float(bar.y) + float(bar.height) == pytest.approx(TOP + PLOT, abs=0.02)


@pytest.mark.parametrize(("highest", "step"), [(1, 0.5), (4, 1), (7, 2), (20, 5), (0.03, 0.01), (21, 10)])
def test_lines_are_at_ones_twos_and_fives(highest: float, step: float) -> None:
    assert nice_step(highest) == pytest.approx(step)


def test_nothing_is_no_chart() -> None:
    assert stacked([("a", "a")], {"one": [0.0]}, str, labels=6) is None
    assert stacked([], {}, str, labels=6) is None


def test_a_single_bar_is_no_wall_and_stands_in_the_middle() -> None:
    bar = chart(5).stacks[0].bars[0]
    assert (bar.x, bar.width) == ("46.000%", "8.000%")


@pytest.mark.parametrize("count", [1, 2, 7, 31, 62, 400])
def test_bars_do_not_overlap_nor_leave_the_drawing_and_labels_are_few(count: int) -> None:
    drawn = chart(*range(1, count + 1))
    edges = [(float(s.bars[0].x[:-1]), float(s.bars[0].width[:-1])) for s in drawn.stacks]
    assert edges[0][0] >= 0 and sum(edges[-1]) <= 100.001
    assert all(x + width <= following + 0.002 for (x, width), (following, _) in pairwise(edges))
    assert 1 <= len(drawn.labels) <= 6
    places = [float(label.x[:-1]) for label in drawn.labels]
    assert all(after - before >= 12 for before, after in pairwise(places))


def test_series_are_stacked_and_what_is_nothing_is_not_drawn() -> None:
    drawn = stacked(
        [("a", "Monday"), ("b", "Tuesday")],
        {"x": [1, 0], "y": [3, 0], "z": [0, 0]},
        amount_of_dollars,
        labels=6,
    )
    assert drawn and len(drawn.stacks) == 1
    below, above = drawn.stacks[0].bars
    assert float(above.y) + float(above.height) == pytest.approx(float(below.y), abs=0.02)
    assert (below.number, above.number) == (0, 1)
    assert drawn.stacks[0].title == "Monday: x: $1, y: $3, in all $4"


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "$0"), (0.0002, "$0.0002"), (0.00215, "$0.0022"), (0.5, "$0.50"), (1.5, "$1.50"), (3, "$3"),
     (250.4, "$250"), (12_500, "$12.5k"), (3_000_000, "$3M")],
)  # fmt: skip
def test_dollars_are_said_as_finely_as_they_are(amount: float, words: str) -> None:
    assert amount_of_dollars(amount) == words

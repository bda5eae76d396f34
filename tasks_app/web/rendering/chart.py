"""Compute a stacked bar chart over time, which a template draws.

Widths are per cent: the drawing fits every screen, and its letters keep their size. Heights are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

TOP, PLOT, BOTTOM = 14, 192, 22
HEIGHT = TOP + PLOT + BOTTOM
#: Of a bar, per cent: few bars must not become walls.
_WIDEST = 8.0
#: So near to an edge, per cent, a label is no longer put in the middle of its bar.
_NEAR = 5.0

Say = Callable[[float], str]


@dataclass(frozen=True)
class Bar:
    """The bar of one series in one bucket."""

    number: int
    x: str
    width: str
    y: str
    height: str


@dataclass(frozen=True)
class Stack:
    """The bars of one bucket with a description."""

    title: str
    bars: list[Bar]


@dataclass(frozen=True)
class Label:
    """A label of the axis. `spare`: hidden on narrow pages."""

    x: str
    anchor: str
    text: str
    spare: bool


@dataclass(frozen=True)
class Chart:
    """A chart. `ticks`: pixels from the top and labels."""

    ticks: list[tuple[str, str]]
    labels: list[Label]
    stacks: list[Stack]
    height: int = HEIGHT
    bottom: int = TOP + PLOT


def stacked(
    buckets: Sequence[tuple[str, str]], series: Mapping[str, Sequence[float]], say: Say, *, labels: int
) -> Chart | None:
    """Compute a chart from bucket names (short and full) and amounts by series; None if all are zero."""
    totals = [sum(amounts) for amounts in zip(*series.values(), strict=True)]
    highest = max(totals, default=0.0)
    if highest <= 0:
        return None
    step = nice_step(highest)
    top = math.ceil(round(highest / step, 6)) * step
    grid = [number * step for number in range(round(top / step) + 1)]
    ticks = [(f"{TOP + PLOT * (1 - value / top):.1f}", say(value)) for value in grid]
    stacks = [
        _stack(
            number, len(buckets), full, {name: amounts[number] for name, amounts in series.items()}, top, say
        )
        for number, (_, full) in enumerate(buckets)
        if totals[number] > 0
    ]
    return Chart(ticks, _labels_shown([short for short, _ in buckets], labels), stacks)


def nice_step(highest: float) -> float:
    """Return the distance of grid lines, 1, 2 or 5 times a power of ten, for three to five lines."""
    magnitude = 10.0 ** math.floor(math.log10(highest / 4))
    return next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= highest / 4 * 0.999)


def _stack(number: int, count: int, full: str, amounts: Mapping[str, float], top: float, say: Say) -> Stack:
    slot = 100 / count
    width = min(slot * (0.8 if count <= 120 else 1.0), _WIDEST)
    x, below, bars = number * slot + (slot - width) / 2, 0.0, []
    for index, amount in enumerate(amounts.values()):
        if amount > 0:
            height = amount / top * PLOT
            y = TOP + PLOT - below / top * PLOT - height
            bars.append(Bar(index, f"{x:.3f}%", f"{width:.3f}%", f"{y:.2f}", f"{height:.2f}"))
            below += amount
    parts = [f"{name}: {say(amount)}" for name, amount in amounts.items() if amount > 0]
    whole = [f"in all {say(below)}"] if len(parts) > 1 else []
    return Stack(f"{full}: {', '.join([*parts, *whole])}", bars)


def _labels_shown(names: Sequence[str], most: int) -> list[Label]:
    """Return at most this many labels at even distances."""
    stride = math.ceil(len(names) / most)
    shown = []
    for place, number in enumerate(range(0, len(names), stride)):
        middle = (number + 0.5) * 100 / len(names)
        anchor = "start" if middle < _NEAR else "end" if middle > 100 - _NEAR else "middle"
        shown.append(Label(f"{middle:.3f}%", anchor, names[number], place % 2 == 1))
    return shown

"""What a benchmark found, as a table and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Metric:
    """Samples of one quantity; `wanted` is what the specification asks for.

    `floor` is what the same would take without the portal, measured in turns with it: the sum of the medians
    of these metrics. Of a rate (`/s`), where more is better, it is the most that would be possible.
    """

    name: str
    unit: str
    wanted: str = ""
    samples: list[float] = field(default_factory=list)
    floor: Sequence[Metric] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def floor_median(self) -> float | None:
        """The floor; None if there is none or a part of it was not measured."""
        if not self.floor or not all(part.samples for part in self.floor):
            return None
        return sum(part.median for part in self.floor)

    @property
    def ratio(self) -> float | None:
        """The figure divided by its floor, so below 1 for a rate that the portal slows down."""
        floor = self.floor_median
        return self.median / floor if floor and self.samples else None

    @property
    def is_rate(self) -> bool:
        return self.unit.startswith("/")

    @property
    def times(self) -> str:
        """The floor, and what it is multiplied with; of a rate, what it is divided by. "" without a floor."""
        if not self.ratio:
            return ""
        if self.is_rate:
            return f"{self.floor_median:,.1f} ÷ {1 / self.ratio:.2f}"
        return f"{self.floor_median:,.1f} × {self.ratio:.2f}"

    @property
    def line(self) -> str:
        if not self.samples:
            return f"{self.name:<66} nothing was measured"
        spread = f"{min(self.samples):,.1f} to {max(self.samples):,.1f}"
        count = f"n={len(self.samples)}"
        row = f"{self.name:<66} {self.median:>10,.1f} {self.unit:<6} {spread:<22} {count:<6} {self.times:<18}"
        return f"{row} {self.wanted}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return the metric for programs; figures in `unit`."""
        known: dict[str, Any] = {"name": self.name, "unit": self.unit, "wanted": self.wanted}
        if self.samples:
            known |= {"median": self.median, "least": min(self.samples), "most": max(self.samples)}
        return known | {
            "samples": self.samples,
            "floor": self.floor_median,
            "floor_of": [part.name for part in self.floor],
            "ratio": self.ratio,
        }


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the least sample that at least this share of the samples does not exceed."""
    return sorted(samples)[max(math.ceil(len(samples) * share) - 1, 0)]


def show(metrics: list[Metric]) -> list[Metric]:
    """Print a line each: median, least and most, how many, the floor and its ratio, what is wanted.

    Return them.
    """
    for metric in metrics:
        print(metric.line)
    return metrics

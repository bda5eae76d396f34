"""What a benchmark found, as a table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass
class Metric:
    """Samples of one quantity; `wanted` is what the specification asks for."""

    name: str
    unit: str
    wanted: str = ""
    samples: list[float] = field(default_factory=list)

    @property
    def line(self) -> str:
        if not self.samples:
            return f"{self.name:<66} nothing was measured"
        middle = statistics.median(self.samples)
        low, high = min(self.samples), max(self.samples)
        spread = f"{low:,.1f} to {high:,.1f}"
        count = f"n={len(self.samples)}"
        return f"{self.name:<66} {middle:>10,.1f} {self.unit:<6} {spread:<22} {count:<6} {self.wanted}"


def show(metrics: list[Metric]) -> None:
    """Print a line each: the median, the least and the most, how many, and what is wanted."""
    for metric in metrics:
        print(metric.line)

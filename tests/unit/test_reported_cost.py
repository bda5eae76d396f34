"""The agent's own number stands beside what was counted only where it is another (M8)."""

from __future__ import annotations

import pytest

from tasks_app.models import Run


@pytest.mark.parametrize(
    ("metered", "counted", "reported", "other"),
    [
        (True, 1.0, 1.05, False),
        (True, 1.0, 0.2, True),
        (True, 0.01, 5.0, True),
        (True, 0.0, 0.0005, False),
        (True, 1.0, None, False),
        (False, 1.0, 9.0, False),
    ],
)
def test_it_differs_by_more_than_a_tenth(
    metered: bool, counted: float, reported: float | None, other: bool
) -> None:
    run = Run(metered=metered, cost_usd=counted, reported_cost_usd=reported)
    assert run.agent_reports_other_cost is other

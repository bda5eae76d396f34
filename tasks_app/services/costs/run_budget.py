"""What a run may still cost before it must wait (M8)."""

from __future__ import annotations

from tasks_app.services.costs.budgets import budgets_of_task
from tasks_app.services.costs.soft_limit import dollars_left


def dollars_for_run(task_id: int) -> float | None:
    """Return the dollars that budgets of the month and the soft limit leave over; None if nothing does."""
    left = (budgets_of_task(task_id).left, dollars_left(task_id))
    return min((one for one in left if one is not None), default=None)

"""The soft cost limit of a task beside the hard one (SPEC M8)."""

from __future__ import annotations


def soft_limit_fault(soft: float | None, *, hard: float | None) -> str | None:
    """Return why the soft cost limit cannot hold beside the hard one, as the rest of a sentence, or None."""
    if not soft or hard is None or soft < hard:
        return None
    return f"is {soft:g}, but must be less than {hard:g} (maxCostUsd), at which the task fails"

"""Sentences about usage limits and temporary faults (P8)."""

from __future__ import annotations

from datetime import datetime, timedelta

from tasks_app.models import Task

#: From this on a sentence says that the wait exceeds a working day.
LONG = timedelta(hours=8)
SHORTEST_WAIT = timedelta(minutes=1)


def fault_words(task: Task) -> str:
    """Return which temporary fault delays the task and when it is tried again; empty if none does."""
    if not task.waits_for_retry or task.retry_at is None or task.fault_at is None:
        return ""
    return f"{task.fault} ({task.fault_at:%H:%M} UTC). Tried again at {task.retry_at:%H:%M} UTC."


def reset_words(resets_at: datetime | None, *, now: datetime) -> str:
    """Return when the limit resets and how far away that is; empty if it is not known."""
    if resets_at is None:
        return ""
    at = f"It resets at {resets_at:%Y-%m-%d %H:%M} UTC"
    away = resets_at - now
    if away <= timedelta(0):
        return f"{at}, which has passed."
    hours, minutes = divmod(round(away.total_seconds() / 60), 60)
    words = f"{at}, in {hours} h {minutes} min" if hours else f"{at}, in {minutes} min"
    return f"{words}. That is more than 8 hours away." if away > LONG else f"{words}."

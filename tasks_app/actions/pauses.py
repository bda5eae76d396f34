"""How long a task has been waiting for a human or for a usage limit (H11)."""

from __future__ import annotations

from django.utils import timezone

from tasks_app.models import Task
from tasks_app.state.phases import Phase

PAUSES = (Phase.WAITING_FOR_INPUT, Phase.WAITING_FOR_RESET)


def pause_seconds(task: Task) -> float:
    """Seconds since the task began to wait; 0 if it does not wait."""
    if task.phase not in PAUSES:
        return 0.0
    began = task.transitions.filter(step=None, target=task.phase).last()
    return (timezone.now() - began.at).total_seconds() if began else 0.0

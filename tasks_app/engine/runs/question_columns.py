"""What is stored of a question for the figures of the usage page (SPEC D8)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q
from django.utils import timezone

from tasks_app.agent.gate.patterns import WRITING
from tasks_app.core.asked_items import item_keys, recommended_items
from tasks_app.core.types import Ask
from tasks_app.history.events.reading import Events
from tasks_app.models import EventKind, Question, Step, Task

#: A question is compared with this many of the newest ones of its project, so that asking stays quick.
MOST_COMPARED = 2_000


def columns_of_question(task: Task, step: Step, ask: Ask, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of a new question. Everything that is asked before the work is about the goal.

    The events of its run must be stored by then.
    """
    keys = item_keys(items)
    return {
        "about_goal": ask.about_goal or step.is_clarifying,
        "is_late": ask.about_goal and not step.is_clarifying and _has_worked(step),
        "worked_seconds": _worked_seconds(task),
        "recommended": recommended_items(items),
        "item_keys": keys,
        "asked_before": _asked_before(task, keys),
    }


def _has_worked(step: Step) -> bool:
    """Return whether work had begun: in a step before, or in this one with a tool that writes files.

    A call that failed or was refused wrote nothing. What an agent writes with shell commands is not seen.
    """
    if step.position > 1:
        return True
    events = Events(Q(run__in=step.current_runs))
    if not events.of_kinds([EventKind.TOOL_USE]).any_with("name", WRITING):
        return False
    writing: set[str] = set()
    for event in events.of_kinds([EventKind.TOOL_USE, EventKind.TOOL_RESULT]).all():
        if event.payload.get("name") in WRITING:
            writing.add(event.payload["id"])
        elif event.payload.get("is_error"):
            writing.discard(event.payload.get("tool_use_id", ""))
    return bool(writing)


def _worked_seconds(task: Task) -> float | None:
    """Return the seconds since the task's start without its pauses; it is working now."""
    if task.started_at is None:
        return None
    return max(0.0, (timezone.now() - task.started_at).total_seconds() - task.paused_seconds)


def _asked_before(task: Task, keys: str) -> bool:
    """Return whether an item with one of the keys was asked in the project before."""
    wanted = [Q(item_keys__contains=key) for key in keys.split()]
    newest = Question.objects.filter(task__project=task.project_id).order_by("-asked_at")[:MOST_COMPARED]
    return bool(wanted) and Question.objects.filter(reduce(or_, wanted), pk__in=newest.values("pk")).exists()

"""What people did to a task, and its early end: the lines of its log that no run wrote."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from tasks_app.core.phases import Phase
from tasks_app.models import Action, AuditEntry, Task, Transition
from tasks_app.models.transition import JUST_CANCELLED

#: The reason of the move of a task that is done early.
FINISHED_EARLY = "finished early at its soft cost limit"
_WATCHING = (Action.TASK_WATCHED, Action.TASK_UNWATCHED)


@dataclass(frozen=True)
class TaskDeed:
    """A line like “Ann resumed the task”, and what she wrote. `key` is the same wherever it is shown."""

    key: str
    at: datetime
    text: str
    said: str = ""


def rows_of_deeds(task: Task) -> tuple[QuerySet[Transition], QuerySet[AuditEntry]]:
    ended = Q(target=Phase.CANCELLED) | Q(target=Phase.DONE, reason=FINISHED_EARLY)
    acted = Q(action__in=[Action.TASK_WENT_ON, Action.TASK_RETRIED, *_WATCHING])
    acted |= Q(action=Action.TASK_CHANGED, detail__has_key="threshold")
    moves = Transition.objects.filter(ended | ~Q(message=""), task=task, step=None)
    return moves.select_related("actor"), AuditEntry.objects.filter(acted, task=task)


def deeds_of(task: Task) -> list[TaskDeed]:
    """Return the cancellations, messages, resumes, retries, thresholds, watchers and early ends, in order."""
    moves, acts = rows_of_deeds(task)
    deeds = [TaskDeed(f"move-{one.pk}", one.at, _moved(one), one.message) for one in moves]
    deeds += [TaskDeed(f"act-{one.pk}", one.at, _act(one)) for one in acts]
    return sorted(deeds, key=lambda deed: deed.at)


def _moved(move: Transition) -> str:
    if move.message:
        return f"{move.actor.shown_name if move.actor else 'Somebody'} wrote to the agent"
    if move.target == Phase.DONE:
        return f"The task was {move.reason}"
    if move.reason.endswith(JUST_CANCELLED):
        return move.reason.removesuffix(JUST_CANCELLED) + " cancelled the task"
    return move.reason or "The task was cancelled"


def _act(entry: AuditEntry) -> str:
    if entry.action == Action.TASK_CHANGED:
        before, after = entry.detail["threshold"]
        return f"{entry.actor_name or 'The portal'} changed the threshold from {before} to {after}"
    return f"{entry.actor_name or 'The portal'} {entry.said.before} {entry.said.after}".strip()

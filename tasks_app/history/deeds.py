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


@dataclass(frozen=True)
class TaskDeed:
    """One line, such as “Ann resumed the task”. `key` is the same wherever it is shown."""

    key: str
    at: datetime
    text: str


def rows_of_deeds(task: Task) -> tuple[QuerySet[Transition], QuerySet[AuditEntry]]:
    ended = Q(target=Phase.CANCELLED) | Q(target=Phase.DONE, reason=FINISHED_EARLY)
    acts = AuditEntry.objects.filter(task=task, action__in=[Action.TASK_WENT_ON, Action.TASK_RETRIED])
    return Transition.objects.filter(ended, task=task, step=None), acts


def deeds_of(task: Task) -> list[TaskDeed]:
    """Return the cancellations, resumes, retries and early ends of the task in order."""
    moves, acts = rows_of_deeds(task)
    deeds = [TaskDeed(f"move-{one.pk}", one.at, _end(one)) for one in moves]
    deeds += [TaskDeed(f"act-{one.pk}", one.at, _act(one)) for one in acts]
    return sorted(deeds, key=lambda deed: deed.at)


def _end(move: Transition) -> str:
    if move.target == Phase.DONE:
        return f"The task was {move.reason}"
    if move.reason.endswith(JUST_CANCELLED):
        return move.reason.removesuffix(JUST_CANCELLED) + " cancelled the task"
    return move.reason or "The task was cancelled"


def _act(entry: AuditEntry) -> str:
    return f"{entry.actor_name or 'The portal'} {entry.said.before} {entry.said.after}".strip()

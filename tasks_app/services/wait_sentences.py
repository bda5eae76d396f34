"""Sentences about what a task waits for: people, usage limits, and temporary faults (P8)."""

from __future__ import annotations

from datetime import datetime, timedelta

from tasks_app.core.amounts import moment_in_words
from tasks_app.core.phases import PHASE_DISPLAYS, Phase
from tasks_app.history.transitions import cancellation_of
from tasks_app.models import QuestionKind, Task, Transition
from tasks_app.services.results import has_checks, later_than_checks

#: From this on a sentence says that the wait exceeds a working day.
LONG = timedelta(hours=8)
SHORTEST_WAIT = timedelta(minutes=1)
#: What a task waits for, by the kind of its only open question.
_OPEN: dict[str, str] = {
    QuestionKind.CLARIFICATION: "A question is open. The task waits for the answer.",
    QuestionKind.APPROVAL: "A tool call needs an approval. The task waits for it.",
    QuestionKind.PLAN: "A plan is ready. The task waits for its review.",
    QuestionKind.COST: "The soft cost limit is reached. The task waits for an answer.",
}


def phase_sentence(task: Task) -> str:
    """Return what the phase means.

    Of a task that waits for people: what kind of question is open. Of a done one: whether it had checks.
    Of a cancelled one: by whom and why.
    """
    if cancelled := cancellation_of(task):
        return f"{_cancellation_words(cancelled)} It can be resumed."
    if task.phase == Phase.WAITING_FOR_INPUT and (kinds := [one.kind for one in task.questions.open()]):
        if len(kinds) == 1:
            return _OPEN[kinds[0]]
        if set(kinds) == {QuestionKind.APPROVAL}:
            return f"{len(kinds)} tool calls need approvals. The task waits for them."
        return f"{len(kinds)} questions are open. The task waits for the answers."
    display = task.phase_display
    if display is not PHASE_DISPLAYS[Phase.DONE]:
        return display.sentence
    if not any(map(has_checks, task.steps.all())):
        return "All steps finished. No checks were configured."
    if later := later_than_checks(task):
        return f"All steps finished. The checks passed. {later}"
    return "All steps finished, all checks passed."


def _cancellation_words(move: Transition) -> str:
    by = f" by {move.actor.shown_name}" if move.actor else ""
    why = f": {move.why_cancelled}" if move.why_cancelled else ""
    return f"Cancelled{by}, {moment_in_words(move.at)}{why}."


def fault_words(task: Task) -> str:
    """Return which temporary fault delays the task and when it is tried again; empty if none does."""
    if not task.waits_for_retry or task.retry_at is None or task.fault_at is None:
        return ""
    return f"{task.fault} ({task.fault_at:%H:%M} UTC). Tried again at {task.retry_at:%H:%M} UTC."


def reset_words(resets_at: datetime | None, *, now: datetime) -> str:
    """Return when the limit resets and how far away that is; empty if it is not known."""
    if resets_at is None:
        return ""
    at = f"It resets at {moment_in_words(resets_at)}"
    away = resets_at - now
    if away <= timedelta(0):
        return f"{at}, which has passed."
    hours, minutes = divmod(round(away.total_seconds() / 60), 60)
    at += f", in {hours} h {minutes} min." if hours else f", in {minutes} min."
    if away > LONG:
        at += " That is more than 8 hours away."
    return at

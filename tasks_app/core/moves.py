"""The allowed moves between phases, of tasks and steps, and additional ones of sequences.

It stands here and not beside `history/transitions.py`, its only reader, because it needs no database.
"""

from __future__ import annotations

from tasks_app.core.phases import Phase

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset(
        {Phase.RUNNING, Phase.CANCELLED, Phase.WAITING_FOR_INPUT}
    ),  # the latter: an answer was taken back
    Phase.RUNNING: frozenset(
        {
            Phase.PENDING,  # put back: the worker stopped or died
            Phase.WAITING_FOR_INPUT,
            Phase.WAITING_FOR_RESET,
            Phase.INTERRUPTED,
            Phase.DONE,
            Phase.FAILED,
            Phase.CANCELLED,
        }
    ),
    Phase.WAITING_FOR_INPUT: frozenset({Phase.PENDING, Phase.CANCELLED}),
    Phase.WAITING_FOR_RESET: frozenset({Phase.PENDING, Phase.CANCELLED}),
    Phase.INTERRUPTED: frozenset({Phase.PENDING, Phase.CANCELLED}),
    Phase.FAILED: frozenset({Phase.PENDING}),
    Phase.CANCELLED: frozenset(
        {Phase.PENDING, Phase.WAITING_FOR_INPUT}
    ),  # the latter: its question is open again
    Phase.DONE: frozenset({Phase.PENDING}),  # retried from a step, or sent back by a reviewer
}

#: Moves of a sequence between two tasks, which depend on its folder. A faulty folder is read again on resume.
MOVES_BETWEEN_TASKS: dict[Phase, frozenset[Phase]] = {
    Phase.RUNNING: frozenset({Phase.PENDING, Phase.DONE, Phase.FAILED}),
    Phase.FAILED: frozenset({Phase.PENDING, Phase.DONE, Phase.FAILED}),
}


def allowed(source: Phase, target: Phase) -> bool:
    """Return whether a task or step may move from `source` to `target`."""
    return target in MOVES[source]


def allowed_between_tasks(source: Phase, target: Phase) -> bool:
    """Return whether a sequence without a current task may move from `source` to `target`."""
    return target in MOVES_BETWEEN_TASKS.get(source, ())

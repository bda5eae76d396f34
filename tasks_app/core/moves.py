"""Which phase may follow which: pure data, the same for tasks and steps. A sequence may a little more."""

from __future__ import annotations

from tasks_app.core.phases import Phase

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.RUNNING, Phase.CANCELLED}),
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
    Phase.DONE: frozenset({Phase.PENDING}),  # retried from a step
}

#: Between two tasks the folder decides. It is looked at again when it was at fault, and may be so still.
MOVES_BETWEEN_TASKS: dict[Phase, frozenset[Phase]] = {
    Phase.RUNNING: frozenset({Phase.PENDING, Phase.DONE, Phase.FAILED}),
    Phase.FAILED: frozenset({Phase.PENDING, Phase.DONE, Phase.FAILED}),
}


def allowed(source: Phase, target: Phase) -> bool:
    """Whether a task or step in `source` may go to `target`."""
    return target in MOVES[source]


def allowed_between_tasks(source: Phase, target: Phase) -> bool:
    """Whether a sequence without a task at hand may go from `source` to `target`."""
    return target in MOVES_BETWEEN_TASKS.get(source, ())

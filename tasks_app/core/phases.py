"""The phases of tasks, steps and sequences, with their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Tone = Literal["quiet", "active", "attention", "bad", "good"]


class Phase(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING_FOR_INPUT = "waiting_for_input"
    WAITING_FOR_RESET = "waiting_for_reset"
    INTERRUPTED = "interrupted"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class PhaseDisplay:
    """Display of a phase; `icon` is the id of a symbol in `static/catherder/icons.svg`."""

    label: str
    sentence: str
    tone: Tone
    icon: str


PHASE_DISPLAYS: dict[Phase, PhaseDisplay] = {
    Phase.PENDING: PhaseDisplay("pending", "Waiting for a free worker.", "quiet", "dot"),
    Phase.RUNNING: PhaseDisplay("running", "The agent is working.", "active", "play"),
    Phase.WAITING_FOR_INPUT: PhaseDisplay(
        "waiting for input",
        "It waits for an answer, an approval or a plan’s review.",
        "attention",
        "ask",
    ),
    Phase.WAITING_FOR_RESET: PhaseDisplay(
        "waiting for reset",
        "Usage limit reached. It resumes by itself when the limit resets.",
        "quiet",
        "clock",
    ),
    Phase.INTERRUPTED: PhaseDisplay(
        "interrupted", "Stopped before the end. It can be resumed.", "quiet", "pause"
    ),
    Phase.DONE: PhaseDisplay("done", "All steps finished.", "good", "check"),
    Phase.FAILED: PhaseDisplay("failed", "Failed. It can be resumed or retried.", "bad", "cross"),
    Phase.CANCELLED: PhaseDisplay("cancelled", "Cancelled. It can be resumed.", "quiet", "slash"),
}

#: How `waiting_for_reset` is shown for a task that waits for a budget, not for a usage limit.
WAITING_FOR_BUDGET = PhaseDisplay(
    "waiting for budget",
    "It resumes by itself next month (UTC), or when the budget is raised.",
    "quiet",
    "clock",
)

#: How `pending` is shown while the answer for which the task waited can still be undone.
ANSWERED = PhaseDisplay(
    "answered", "Resumes in a few seconds, once the answer can no longer be undone.", "quiet", "clock"
)

#: How `done` is shown for the files that the portal wrote of a project's decisions.
EXPORTED = PhaseDisplay("done", "The portal wrote these files from the project’s decisions.", "good", "check")

#: How `done` is shown for a sequence, which has tasks and no steps.
ALL_TASKS_DONE = PhaseDisplay("done", "All tasks done.", "good", "check")

#: How `done` is shown for a task that a human had finished early, at its soft cost limit.
FINISHED_EARLY = PhaseDisplay(
    "finished early",
    "Finished early at its soft cost limit: not all of its steps are done. It can be resumed.",
    "quiet",
    "slash",
)
#: How `done` is shown for such a task if it was in its last step, so that no step is left to run.
LAST_STEP_EARLY = PhaseDisplay(
    "finished early",
    "Finished early at its soft cost limit: its last step was told to begin nothing new.",
    "quiet",
    "slash",
)
#: How `done` is shown for a task of somebody's own project that was played by a script.
ONLY_REHEARSED = PhaseDisplay(
    "rehearsed",
    "Rehearsed: nothing was changed. Connect a model, then retry the task.",
    "quiet",
    "hollow",
)
#: How `running` is shown until then.
FINISHING_EARLY = PhaseDisplay(
    "finishing early", "The agent ends its present step. No further step begins.", "active", "play"
)
#: How the steps of such a task are shown that have not run, or were stopped before their end.
NOT_RUN = PhaseDisplay("not run", "It did not run: the task was finished early.", "quiet", "hollow")
STOPPED_EARLY = PhaseDisplay("not done", "It was stopped: the task was finished early.", "quiet", "slash")
#: How a step is shown whose turn has not come.
NOT_BEGUN = PhaseDisplay("not started", "It begins when the step before it is done.", "quiet", "hollow")
#: How a step of a cancelled task is shown that has not run. Its phase stays `pending`, for a resume.
NOT_RUN_AS_CANCELLED = PhaseDisplay("not run", "It did not run: the task was cancelled.", "quiet", "hollow")

#: How `running` is shown while no worker holds the task, because the last one died.
WORKER_LOST = PhaseDisplay(
    "waiting for a worker", "Its worker died. The next free worker goes on with it.", "quiet", "clock"
)

#: Phases in which nothing more happens unless a human wants it to.
ENDED = frozenset({Phase.DONE, Phase.FAILED, Phase.CANCELLED})

#: Phases from which a human can resume.
RESUMABLE = frozenset({Phase.INTERRUPTED, Phase.FAILED, Phase.CANCELLED, Phase.WAITING_FOR_RESET})

#: Phases in which a human can retry a task from one of its steps.
RETRYABLE = RESUMABLE | {Phase.DONE}

#: Phases in which a human can cancel.
CANCELLABLE = frozenset(Phase) - ENDED


# The allowed moves between phases, of tasks and steps, and additional ones of sequences.
#
# It stands here and not beside `history/transitions.py`, its only reader, because it needs no database.


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

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
class PhaseFacts:
    """How a phase is shown; `icon` is the id of a symbol in `static/catherder/icons.svg`."""

    label: str
    sentence: str
    tone: Tone
    icon: str


FACTS: dict[Phase, PhaseFacts] = {
    Phase.PENDING: PhaseFacts("pending", "Waiting for a free worker.", "quiet", "dot"),
    Phase.RUNNING: PhaseFacts("running", "The agent is working.", "active", "play"),
    Phase.WAITING_FOR_INPUT: PhaseFacts(
        "waiting for input", "A question is open. The task waits for the answer.", "attention", "ask"
    ),
    Phase.WAITING_FOR_RESET: PhaseFacts(
        "waiting for reset",
        "Usage limit reached. It resumes by itself when the limit resets.",
        "quiet",
        "clock",
    ),
    Phase.INTERRUPTED: PhaseFacts(
        "interrupted", "Stopped before the end. It can be resumed.", "quiet", "pause"
    ),
    Phase.DONE: PhaseFacts("done", "All steps finished, all checks passed.", "good", "check"),
    Phase.FAILED: PhaseFacts("failed", "Failed. It can be resumed or retried.", "bad", "cross"),
    Phase.CANCELLED: PhaseFacts("cancelled", "Cancelled. It can be resumed.", "quiet", "slash"),
}

#: How `waiting_for_reset` is shown for a task that waits for a budget, not for a usage limit.
WAITING_FOR_BUDGET = PhaseFacts(
    "waiting for budget",
    "It resumes by itself next month (UTC), or when the budget is raised.",
    "quiet",
    "clock",
)

#: Phases in which nothing more happens unless a human wants it to.
ENDED = frozenset({Phase.DONE, Phase.FAILED, Phase.CANCELLED})

#: Phases from which a human can resume.
RESUMABLE = frozenset({Phase.INTERRUPTED, Phase.FAILED, Phase.CANCELLED, Phase.WAITING_FOR_RESET})

#: Phases in which a human can retry a task from one of its steps.
RETRYABLE = RESUMABLE | {Phase.DONE}

#: Phases in which a human can cancel.
CANCELLABLE = frozenset(Phase) - ENDED

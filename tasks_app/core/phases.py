"""The phases of a task and of a step, and what each of them means."""

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
    """How people see a phase: `icon` is the id of a symbol in `static/catherder/icons.svg`."""

    label: str
    sentence: str
    tone: Tone
    icon: str


FACTS: dict[Phase, PhaseFacts] = {
    Phase.PENDING: PhaseFacts("pending", "Nothing runs; it starts when a worker is free.", "quiet", "dot"),
    Phase.RUNNING: PhaseFacts("running", "A worker holds it and works on it now.", "active", "play"),
    Phase.WAITING_FOR_INPUT: PhaseFacts(
        "waiting for you",
        "The agent asked a question; nothing runs until a human answers.",
        "attention",
        "ask",
    ),
    Phase.WAITING_FOR_RESET: PhaseFacts(
        "waiting for reset",
        "A usage limit was reached; it goes on by itself when the limit resets.",
        "quiet",
        "clock",
    ),
    Phase.INTERRUPTED: PhaseFacts(
        "interrupted", "Somebody stopped it; it goes on from there when told to.", "quiet", "pause"
    ),
    Phase.DONE: PhaseFacts("done", "Every step ended and every check passed.", "good", "check"),
    Phase.FAILED: PhaseFacts(
        "failed", "It stopped for the reason given; it can be tried again.", "bad", "cross"
    ),
    Phase.CANCELLED: PhaseFacts("cancelled", "Somebody called it off.", "quiet", "slash"),
}

#: Phases in which nothing more happens unless a human wants it to.
ENDED = frozenset({Phase.DONE, Phase.FAILED, Phase.CANCELLED})

#: Phases from which a human can say "go on".
RESUMABLE = frozenset({Phase.INTERRUPTED, Phase.FAILED, Phase.CANCELLED, Phase.WAITING_FOR_RESET})

#: Phases in which a human can have a task done again from one of its steps.
RETRYABLE = RESUMABLE | {Phase.DONE}

#: Phases that a human can call off.
CANCELLABLE = frozenset(Phase) - ENDED

"""What an agent is told when it is set to work again (SPEC H9, P6, P8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NewType

from tasks_app.prompting.foreign import fenced, foreign, quoted, tail

# A reason to go on, in words; made by the functions below, which make what others wrote safe.
Feedback = NewType("Feedback", str)

MAX_OUTPUT = 10_000


@dataclass(frozen=True)
class AnsweredQuestion:
    """One question and what the human replied to it."""

    question: str
    answer: str


def answer_feedback(answered: Sequence[AnsweredQuestion], *, answered_by: str) -> Feedback:
    """The answer to what the agent asked, which may have been several questions at once."""
    pairs = (f"Question:\n{quoted(one.question)}\n\nAnswer:\n{quoted(one.answer)}" for one in answered)
    who = " ".join(foreign(answered_by).split())
    opening = f"You stopped to ask a human. {who} has answered:"
    return Feedback("\n\n".join([opening, *pairs, "Take this as decided and act on it."]))


def failed_check_feedback(*, check: str, reason: str, output: str, limit: int = MAX_OUTPUT) -> Feedback:
    """The check that the agent's work did not pass.

    `check` says what was checked (a command, a file), `reason` how it failed ("it ended with exit code 1").
    Of the output the last `limit` characters are kept, since that is where the verdict stands.
    """
    parts = [f"Your work was checked after you ended your turn, and the check failed: {foreign(reason)}."]
    parts.append(f"The check:\n\n{fenced(check)}")
    if output.strip():
        parts.append(f"Its output:\n\n{fenced(tail(output, limit=limit))}")
    parts.append(
        "Find the cause and repair it in your work. Do not weaken the checks: change, skip or delete no "
        "test, check or setting in order to make it pass."
    )
    return Feedback("\n\n".join(parts))


def usage_limit_feedback(*, reset_at: datetime | None) -> Feedback:
    """The model's usage limit stopped the work; `reset_at` (aware of its zone) is when it ended, if known."""
    until = f" until {reset_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if reset_at else ""
    return Feedback(
        f"A usage limit of the model stopped you in the middle of your work{until}. The limit is over. "
        "Nothing is wrong with what you did, but your last action may be incomplete: look before you go on."
    )


def interruption_feedback() -> Feedback:
    """A person stopped the work and has now started it again."""
    return Feedback(
        "Your work was interrupted by a person and is now to go on. Your last action may be incomplete: look "
        "before you go on."
    )


def crash_feedback(*, detail: str = "") -> Feedback:
    """The agent's process ended without finishing; `detail` says what is known of it."""
    known = (
        f" What is known of it:\n\n{fenced(tail(detail, limit=MAX_OUTPUT))}\n\n" if detail.strip() else " "
    )
    return Feedback(
        f"The process that you ran in ended unexpectedly.{known}Files may be half written and commands may "
        "have run in part: look at the state of the repository before you go on."
    )

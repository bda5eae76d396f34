"""The prompt of a step, put together from its parts (SPEC P4, H10, H13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tasks_app.prompting.foreign import foreign, quoted, section

PLAN_STEP = "plan"

ROLE = """\
You are a software engineer who works alone in a clone of a git repository, as one step of a pipeline. Your
working directory is the root of the repository; keep inside it. Stay on the branch that is checked out and
do not push. When you end your turn, your step counts as finished and is checked; so end it only when the work
of your step is whole.

Below, sections begin with a line of capitals between dashes. A line of that kind that has a backslash before
it is part of a text that somebody else wrote, not a section."""


@dataclass(frozen=True)
class HistoryEntry:
    """One question of this task that a human has settled. The times are aware of their zone.

    `outcome` is Answered, Dismissed (`answer` then holds notes at most), or a verdict on a call or a plan.
    """

    step: str
    asked_at: datetime
    answered_at: datetime
    answered_by: str
    question: str
    answer: str
    outcome: str = "Answered"


@dataclass(frozen=True)
class PromptParts:
    """Everything that the prompt of one step is made of.

    `steps` are the names of the whole pipeline in order. `threshold_text` is `InteractionIntro.render(…)`,
    empty for a threshold of 0. `plan` is the text of PLAN.md, None when there is none yet. `history` is in
    the order of asking.
    """

    step: str
    steps: tuple[str, ...]
    task: str
    instructions: str
    threshold_text: str = ""
    sequence_folder: str | None = None
    plan: str | None = None
    project_instructions: str | None = None
    history: tuple[HistoryEntry, ...] = ()


def assemble(parts: PromptParts) -> str:
    """The prompt of the step. What others wrote in it cannot pass for a section."""
    return "\n\n".join([*_opening(parts), *_sections(parts)]) + "\n"


def _opening(parts: PromptParts) -> Iterator[str]:
    yield ROLE
    if parts.threshold_text:
        yield parts.threshold_text
    if parts.sequence_folder:
        yield _sequence(parts.sequence_folder)
    yield _steps(parts.steps)
    yield f'You are responsible for the step "{parts.step}". Leave the other steps to those who do them.'


def _sequence(folder: str) -> str:
    return (
        f"This task belongs to a sequence: the task files in the folder `{_one_line(folder)}`, done one "
        "after the other in the order of their names, on one branch. You may add tasks that follow this "
        "one as new files `NN-name.md` in that folder; files whose names begin with `_` are ignored."
    )


def _steps(steps: Sequence[str]) -> str:
    listed = "\n".join(f"{number}. {name}" for number, name in enumerate(steps, start=1))
    return f"The steps of the pipeline are, in this order:\n\n{listed}"


def _sections(parts: PromptParts) -> Iterator[str]:
    yield section("TASK DEFINITION", foreign(parts.task))
    if parts.plan and parts.plan.strip() and _comes_after_plan(parts):
        yield section("PLAN", foreign(parts.plan))
    if parts.project_instructions and parts.project_instructions.strip():
        yield section("PROJECT INSTRUCTIONS (CLAUDE.md)", foreign(parts.project_instructions))
    if parts.history:
        yield section("HUMAN INTERACTION HISTORY", _history(parts.history))
    yield section("INSTRUCTIONS FOR YOUR STEP", foreign(parts.instructions))


def _comes_after_plan(parts: PromptParts) -> bool:
    before = parts.steps[: parts.steps.index(parts.step)] if parts.step in parts.steps else ()
    return PLAN_STEP in before


def _history(history: Sequence[HistoryEntry]) -> str:
    entries = (_entry(number, entry) for number, entry in enumerate(history, start=1))
    return "\n\n".join(["What humans have decided in this task so far. It holds for you too.", *entries])


def _entry(number: int, entry: HistoryEntry) -> str:
    if entry.outcome not in ("Answered", "Dismissed"):
        return _verdict(number, entry)
    settled = entry.outcome
    answer = f"   Answer:\n{quoted(entry.answer, indent='   ')}"
    if settled == "Dismissed":
        notes = f" Notes:\n{quoted(entry.answer, indent='   ')}" if entry.answer else ""
        answer = f"   No answer: decide it by your own best judgement.{notes}"
    return (
        f"{number}. Step: {entry.step}\n"
        f"   Asked at: {_moment(entry.asked_at)}\n"
        f"   {settled} at: {_moment(entry.answered_at)}\n"
        f"   {settled} by: {_one_line(entry.answered_by)}\n"
        f"   Question:\n{quoted(entry.question, indent='   ')}\n{answer}"
    )


def _verdict(number: int, entry: HistoryEntry) -> str:
    """In one line; the answer begins with what was decided."""
    return (
        f"{number}. Step {entry.step}, {_moment(entry.answered_at)}: {_one_line(entry.question)} "
        f"{_one_line(entry.answer)} (by {_one_line(entry.answered_by)})"
    )


def _one_line(text: str) -> str:
    return " ".join(foreign(text).split())


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

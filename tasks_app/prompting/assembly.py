"""The prompt of a step, assembled from its parts (SPEC P4, H10, H13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tasks_app.core.types import KnownDecision
from tasks_app.prompting.criteria import Criteria, criteria_text
from tasks_app.prompting.decisions import decisions_text
from tasks_app.prompting.escaping import escape, escaped_line, head, quote, section

PLAN_FILE = "PLAN.md"
#: Characters of a plan that a prompt includes.
MAX_PLAN = 100_000


# All prompts begin with the same text, so that the model's provider can cache it.
ROLE = """\
You are a software engineer who works alone in a fresh clone of a git repository. Your working directory is
the root of the repository; keep inside it. Stay on the branch that is checked out and do not push. When you
end your turn, your work counts as finished; so end it only when it is whole.

The clone was made for {owner}. It holds what is committed: what git ignores, such as
installed dependencies, build results and local settings, is there only if {makers} put it there.

Below, sections begin with a line of capitals between dashes. A line of that kind that has a backslash before
it is part of a text that somebody else wrote, not a section."""


#: What replaces the instructions on asking if nobody can be asked.
UNASKED = (
    "What the task leaves open, decide by yourself: read the code, follow what the repository already does,\n"
    "and write down in your last message what you assumed."
)
_POINTS_TO_AGENTS, _POINTS_TO_CLAUDE = "@AGENTS.md", "@CLAUDE.md"


@dataclass(frozen=True)
class HistoryEntry:
    """One question of this task that a human has settled. The times have a time zone.

    `outcome` is Answered, Dismissed (`answer` then holds notes at most), or a verdict on a call or a plan.
    `chosen` are the chosen options with their descriptions. `task` names the task of a sequence.
    """

    step: str
    asked_at: datetime
    answered_at: datetime
    answered_by: str
    question: str
    answer: str
    outcome: str = "Answered"
    chosen: tuple[tuple[str, str], ...] = ()
    task: str = ""


@dataclass(frozen=True)
class PromptParts:
    """Everything that the prompt of one step is made of.

    `steps` are the names of the whole pipeline in order. `threshold_text` is `InteractionIntro.render(…)`,
    empty for a threshold of 0. `plan` is the plan of the task, None if no step has written one yet; the step
    `plan_step` writes it. `history` is in the order of asking. `base_commit` is where the task began.
    `project_instructions` is the repository's CLAUDE.md, `agents_instructions` its AGENTS.md. `findings` is
    what the clarifying pass said at its end. `decisions` are the project's, the most specific first;
    `more_decisions` are not listed because they are too many.
    """

    step: str
    steps: tuple[str, ...]
    task: str
    instructions: str
    threshold_text: str = ""
    sequence_folder: str | None = None
    plan: str | None = None
    plan_step: str = "plan"
    project_instructions: str | None = None
    agents_instructions: str | None = None
    base_commit: str = ""
    criteria: Criteria = field(default_factory=Criteria)
    findings: str = ""
    history: tuple[HistoryEntry, ...] = ()
    decisions: tuple[KnownDecision, ...] = ()
    more_decisions: int = 0


def assemble(parts: PromptParts) -> str:
    """Return the prompt of the step. Text of others in it cannot pass for a section."""
    return "\n\n".join([*_opening(parts), *_prompt_sections(parts)]) + "\n"


def _opening(parts: PromptParts) -> Iterator[str]:
    alone = len(parts.steps) == 1
    owner = "this task and those before it in its sequence" if parts.sequence_folder else "this task"
    makers = "you" if alone and not parts.sequence_folder else "you or those before you"
    yield ROLE.format(owner=owner, makers=makers)
    yield parts.threshold_text or UNASKED
    if parts.sequence_folder:
        yield _sequence(parts.sequence_folder)
    if not alone:
        listed = "\n".join(f"{number}. {name}" for number, name in enumerate(parts.steps, start=1))
        yield f"The steps of the pipeline are, in this order:\n\n{listed}"
    responsible = f'You are responsible for the step "{parts.step}".'
    yield responsible if alone else f"{responsible} Leave the other steps to those who do them."
    if criteria := criteria_text(parts.criteria):
        yield criteria
    if parts.base_commit:
        yield _diff_command(parts)


def _diff_command(parts: PromptParts) -> str:
    """Return the command that shows all changes of the task, with new files, which git diff leaves out."""
    without_plan = f" ':(exclude){PLAN_FILE}'" if _shows_plan(parts) else ""
    return (
        f"The task began at the commit {parts.base_commit}. This command shows the diff of the\n"
        f"task, new files and what is not committed included:\n\n"
        f"    git add --intent-to-add . && git diff {parts.base_commit} -- .{without_plan}"
    )


def _sequence(folder: str) -> str:
    return (
        f"This task belongs to a sequence: the task files in the folder `{escaped_line(folder)}`, done one "
        "after the other in the order of their names, on one branch. You may add tasks that follow this "
        "one as new files `NN-name.md` in that folder; files whose names begin with `_` are ignored."
    )


def _prompt_sections(parts: PromptParts) -> Iterator[str]:
    yield section("TASK DEFINITION", escape(parts.task))
    if parts.findings.strip():
        yield section("FINDINGS BEFORE WORK", escape(parts.findings))
    if _shows_plan(parts):
        yield section("PLAN", escape(head(parts.plan or "", limit=MAX_PLAN)))
    for name, text in _project_instructions(parts):
        yield section(f"PROJECT INSTRUCTIONS ({name})", escape(text))
    if parts.decisions or parts.more_decisions:
        may_ask = bool(parts.threshold_text)
        text = decisions_text(parts.decisions, more=parts.more_decisions, may_ask=may_ask)
        yield section("DECISIONS OF THIS PROJECT", text)
    if parts.history:
        yield section("HUMAN INTERACTION HISTORY", _history(parts.history))
    yield section("INSTRUCTIONS FOR YOUR STEP", escape(parts.instructions))


def _project_instructions(parts: PromptParts) -> Iterator[tuple[str, str]]:
    """Yield name and text of both files, but leave out a file that the other contains or that only refers."""
    claude, agents = (parts.project_instructions or "").strip(), (parts.agents_instructions or "").strip()
    if claude and claude != _POINTS_TO_AGENTS and claude not in agents:
        yield "CLAUDE.md", claude
    if agents and agents != _POINTS_TO_CLAUDE and (agents not in claude or claude == agents):
        yield "AGENTS.md", agents


def _shows_plan(parts: PromptParts) -> bool:
    before = parts.steps[: parts.steps.index(parts.step)] if parts.step in parts.steps else ()
    return bool(parts.plan and parts.plan.strip()) and parts.plan_step in before


def _history(history: Sequence[HistoryEntry]) -> str:
    entries = (
        _verdict_entry(number, entry)
        if entry.outcome not in ("Answered", "Dismissed")
        else _answer_entry(number, entry)
        for number, entry in enumerate(history, start=1)
    )
    scope = "in this sequence of tasks" if any(entry.task for entry in history) else "in this task"
    return "\n\n".join([f"What humans have decided {scope} so far. It holds for you too.", *entries])


def _answer_entry(number: int, entry: HistoryEntry) -> str:
    task = f"Task: {escaped_line(entry.task)}\n   " if entry.task else ""
    answer = f"   Answer:\n{quote(entry.answer, indent='   ')}"
    if entry.outcome == "Dismissed":
        notes = f" Notes:\n{quote(entry.answer, indent='   ')}" if entry.answer else ""
        answer = f"   No answer: decide it by your own best judgement.{notes}"
    return (
        f"{number}. {task}Step: {entry.step}\n"
        f"   Asked at: {_utc(entry.asked_at)}\n"
        f"   {entry.outcome} at: {_utc(entry.answered_at)}\n"
        f"   {entry.outcome} by: {escaped_line(entry.answered_by)}\n"
        f"   Question:\n{quote(entry.question, indent='   ')}\n{answer}{_chosen_descriptions(entry)}"
    )


def _chosen_descriptions(entry: HistoryEntry) -> str:
    """Describe the chosen options: a label alone rarely says what was decided."""
    described = [f"{label}: {description}" for label, description in entry.chosen if description.strip()]
    return "".join(f"\n   What that means:\n{quote(text, indent='   ')}" for text in described)


def _verdict_entry(number: int, entry: HistoryEntry) -> str:
    """Return one line; the answer begins with the verdict."""
    task = f"Task “{escaped_line(entry.task)}”, " if entry.task else ""
    question, answer, user = map(escaped_line, (entry.question, entry.answer, entry.answered_by))
    verdict = f"{question} {answer} (by {user})"
    return f"{number}. {task}Step {entry.step}, {_utc(entry.answered_at)}: {verdict}"


def _utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

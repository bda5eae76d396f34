"""The prompt of a step, assembled from its parts (SPEC P4, H10, H13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tasks_app.core.types import PLAN_FILE, KnownDecision
from tasks_app.prompting.criteria import Criteria, criteria_text
from tasks_app.prompting.decisions import decisions_text
from tasks_app.prompting.escaping import escape, escaped_line, head, newest_that_fit, quote, section
from tasks_app.prompting.no_answer import NOBODY_CHOSE, taken_by_rule

#: Characters of a plan that a prompt includes.
MAX_PLAN = 100_000
#: Characters of one account of an earlier run that a prompt includes, and of all of them.
MAX_ACCOUNT, MAX_ACCOUNTS = 8_000, 32_000
#: Files with instructions that a prompt names.
MAX_LISTED = 60

# All prompts begin with the same text, so that the model's provider can cache it.
ROLE = """\
You are a software engineer who works in a fresh clone of a git repository. Your working directory is the
root of the repository; keep inside it. Only what your commands need for themselves may be in `/tmp`, which is
emptied each time your work pauses or ends. Stay on the branch that is checked out and do not push. You need
not commit: the files are recorded as you leave them, all but those that git ignores. Tags and other branches
that you make are not kept. When you end your turn, your work counts as finished; so end it only when it is
whole. If you cannot do your work, do not pretend: run `cat-herder not-done "why"` in your shell, with the
reason, and end your turn. The task then fails with that reason.

Do not expect anybody to read along while you work. A call that is refused was refused by a rule of this step
or of the sandbox, unless the refusal names a person. What the portal, which runs you, adds to the result of a
call stands in brackets: `[From the portal: …]`.

Your last message is what people read as the result {readers}.
It must stand by itself: what you changed and where, what you ran and what came of it, what you assumed, what
is open. It covers the whole of your step, also what you did before a pause. If you are sent back, say again
first all that you changed in your step, and then what you did since.

{clone}

Below, sections begin with a line of capitals between dashes. A line of that kind that has a backslash before
it is part of a text that somebody else wrote, not a section."""


_CLONE = """\
The clone was made for {owner}. It holds what is committed: what git ignores, such as
installed dependencies, build results and local settings, is there only if {makers} put it there."""
_CLONE_WITH_SETUP = """\
The clone was made for {owner}. It holds what is committed. Then it was made ready by these commands:

{setup}

What else git ignores, such as build results and local settings, is there only if {makers} put it there."""
_HOME_IN_SEQUENCE = """
Your home is new in each task of the sequence: what earlier tasks installed there, as with
`pip install --user`, is gone."""
#: How the agent plans in the program's plan mode, and what of the program's own text does not hold here.
_PLAN_MODE = """\
This step begins in plan mode, as a message of your program says. Until a human has approved your plan you
only read; every call that does more, such as a test run, is refused. Write the plan to the file that the
message names, although it lies outside the repository: how you will do this step, or, if the step is to write
a plan such as PLAN.md, the whole text of that. Then call `ExitPlanMode`, with nothing else in that message.
Your work stops until a human has read the plan, and approved it or sent it back with comments. Once it is
approved, do this step as you planned it, and no other, although your program then says to start coding. Two
things in the message of your program do not hold here: what it says on other agents (there are none to
launch, so read yourself), and on {asking}."""
_PLAN_MODE_ASKING = "when to ask (that is said above)"
_PLAN_MODE_UNASKED = "what is to be settled first (decide by yourself what is open, and say in the plan how)"
#: Replaces the instructions on asking if nobody can be asked.
UNASKED = (
    "What the task leaves open, decide by yourself, also where other texts of your program want it\n"
    "confirmed: read the code, follow what the repository already does, prefer what is easy to undo,\n"
    "and write down in your last message what you assumed."
)
_POINTS_TO_AGENTS, _POINTS_TO_CLAUDE = "@AGENTS.md", "@CLAUDE.md"


@dataclass(frozen=True)
class HistoryEntry:
    """One question of this task that a human has settled. The times have a time zone.

    `further` are the other questions on the same card, with their answers. `outcome` is Answered, Dismissed
    (`answer` then holds notes at most), or a verdict on a call or a plan. `chosen` are the chosen options
    with their descriptions. `task` names the task of a sequence. `kind` is that of the question; of one about
    costs, `answer` has the notes too. `since` is a sentence on what has become of the answer. `ended` says
    that a rule ended the question without an answer; the answers are then what the agent recommended, if any.
    """

    step: str
    asked_at: datetime
    answered_at: datetime
    answered_by: str
    question: str
    answer: str
    outcome: str = "Answered"
    chosen: tuple[tuple[str, str], ...] = ()
    further: tuple[tuple[str, str], ...] = ()
    task: str = ""
    kind: str = "clarification"
    since: str = ""
    ended: str = ""


@dataclass(frozen=True)
class EarlierAccount:
    """The last message of an earlier run's agent. `task` names an earlier task of the sequence."""

    step: str
    text: str
    task: str = ""
    check_failed: bool = False


@dataclass(frozen=True)
class PromptParts:
    """Everything that the prompt of one step is made of.

    `steps` are the names of the whole pipeline in order. `setup` are the commands that made the clone ready.
    `plan_mode`: the step begins with a plan that waits for an approval. `threshold_text` is
    `InteractionIntro.render(…)`, empty for a threshold of 0. `plan` is the plan of the task, None if no step
    has written one yet; the step `plan_step` writes it. `plan_file_differs`: that plan was approved, and the
    file says something else now. `history` is in the order of asking. `base_commit` is where the task began.
    `project_instructions` is the repository's CLAUDE.md, `agents_instructions` its AGENTS.md,
    `more_instructions` are further files of that kind, `listed_instructions` those that agents read
    themselves, with what they apply to. `accounts` are what the agents of earlier runs, also of earlier tasks
    of the sequence, said at their ends, the newest last. `decisions` are the project's, the most specific
    first; `more_decisions` are not listed because they are too many.
    """

    step: str
    steps: tuple[str, ...]
    task: str
    instructions: str
    threshold_text: str = ""
    sequence_folder: str | None = None
    may_add_tasks: bool = True
    setup: tuple[str, ...] = ()
    plan: str | None = None
    plan_step: str = "plan"
    plan_file_differs: bool = False
    plan_mode: bool = False
    project_instructions: str | None = None
    agents_instructions: str | None = None
    more_instructions: tuple[tuple[str, str], ...] = ()
    listed_instructions: tuple[tuple[str, str], ...] = ()
    base_commit: str = ""
    criteria: Criteria = field(default_factory=Criteria)
    accounts: tuple[EarlierAccount, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    decisions: tuple[KnownDecision, ...] = ()
    more_decisions: int = 0


def assemble(parts: PromptParts) -> str:
    """Return the prompt of the step. Text of others in it cannot pass for a section."""
    return "\n\n".join([*_opening(parts), *_prompt_sections(parts)]) + "\n"


def _opening(parts: PromptParts) -> Iterator[str]:
    alone = len(parts.steps) == 1
    owner, makers = "this task", "you or those before you"
    if parts.sequence_folder:
        owner = "this task and those before it in its sequence"
    elif alone:
        makers = "you"
    clone = _CLONE.format(owner=owner, makers=makers)
    if parts.setup:
        commands = "\n".join(f"    {escaped_line(command)}" for command in parts.setup)
        clone = _CLONE_WITH_SETUP.format(owner=owner, makers=makers, setup=commands)
    if parts.sequence_folder:
        clone += _HOME_IN_SEQUENCE
    yield ROLE.format(clone=clone, readers=_readers(parts))
    yield parts.threshold_text or UNASKED
    if parts.sequence_folder:
        yield _sequence(parts.sequence_folder, may_add_tasks=parts.may_add_tasks)
    if not alone:
        listed = "\n".join(f"{number}. {name}" for number, name in enumerate(parts.steps, start=1))
        yield f"The steps of the pipeline are, in this order:\n\n{listed}"
        yield f'You are responsible for the step "{parts.step}". Leave the other steps to those who do them.'
    else:
        yield f'You are responsible for the step "{parts.step}".'
    if criteria := criteria_text(parts.criteria):
        yield criteria
    if parts.plan_mode:
        asking = _PLAN_MODE_UNASKED
        if parts.threshold_text:
            asking = _PLAN_MODE_ASKING
        yield _PLAN_MODE.format(asking=asking)
    if parts.base_commit and parts.criteria.has_shell:
        yield _diff_command(parts)


def _readers(parts: PromptParts) -> str:
    """Return whose result the last message is, and which agents read it."""
    result = "of this task" if len(parts.steps) == 1 else "of your step"
    later = []
    if parts.step != parts.steps[-1]:
        later.append("steps")
    if parts.sequence_folder:
        later.append("tasks")
    if later:
        return f"{result}, and what the agents of later {' and '.join(later)} read"
    return result


def _diff_command(parts: PromptParts) -> str:
    """Return the command that shows all changes of the task; git diff leaves new files out.

    Where the shell only reads, as in plan mode, they are listed by a command of its own.
    """
    files = "."
    if _shows_plan(parts):
        files += f" ':(exclude){PLAN_FILE}'"
    diff = f"git diff {parts.base_commit} -- {files}"
    began = f"The task began at the commit {parts.base_commit}."
    if parts.plan_mode or parts.criteria.shell_rules is not None:
        return f"{began} The diff of the task, and its new files:\n\n    {diff}\n    git status --short"
    return (
        f"{began} This command shows the diff of the\n"
        "task, new files and what is not committed included:\n\n"
        f"    git add --intent-to-add {files} && {diff}"
    )


def _sequence(folder: str, *, may_add_tasks: bool) -> str:
    text = (
        f"This task belongs to a sequence: the task files in the folder `{escaped_line(folder)}`, done one "
        "after the other in the order of their names, on one branch."
    )
    if not may_add_tasks:
        return text
    return (
        f"{text} You may add tasks that follow this one as new files `NN-name.md` in that folder; files "
        "whose names begin with `_` are ignored. A new one that cannot be run, such as one "
        "with a pipeline that does not exist, counts as a failed check."
    )


def _prompt_sections(parts: PromptParts) -> Iterator[str]:
    yield section("TASK DEFINITION", escape(parts.task))
    if _shows_plan(parts):
        plan = escape(head(parts.plan or "", limit=MAX_PLAN))
        yield section("PLAN", f"{_FILE_DIFFERS}\n\n{plan}" if parts.plan_file_differs else plan)
    for name, text in _project_instructions(parts):
        yield section(f"PROJECT INSTRUCTIONS ({name})", escape(text))
    for name, text in parts.more_instructions:
        yield section(f"PROJECT INSTRUCTIONS ({escaped_line(name)})", escape(text))
    if parts.listed_instructions:
        shown = [
            f"- {escaped_line(name)}: {escaped_line(applies)}"
            for name, applies in parts.listed_instructions[:MAX_LISTED]
        ]
        if more := len(parts.listed_instructions) - len(shown):
            shown.append(
                f"- and {more} more; look for CLAUDE.md and AGENTS.md in the folders that you change"
            )
        introduction = "These files hold instructions, too. Read one before you change what it applies to:"
        yield section("MORE PROJECT INSTRUCTIONS", "\n".join([introduction, "", *shown]))
    if parts.decisions or parts.more_decisions:
        text = decisions_text(parts.decisions, more=parts.more_decisions, may_ask=bool(parts.threshold_text))
        yield section("DECISIONS OF THIS PROJECT", text)
    if parts.accounts:
        yield section("ACCOUNTS OF EARLIER RUNS", accounts_text(parts.accounts))
    if parts.history:
        yield section("HUMAN INTERACTION HISTORY", history_text(parts.history))
    yield section("INSTRUCTIONS FOR YOUR STEP", escape(parts.instructions))


_FILE_DIFFERS = (
    f"[From the portal: a human approved this plan. {PLAN_FILE} in the repository says something else now,\n"
    "because an agent has changed it since. What stands here is what holds.]"
)


def _project_instructions(parts: PromptParts) -> Iterator[tuple[str, str]]:
    """Yield name and text of both files, but leave out a file that the other contains or that only refers."""
    claude, agents = (parts.project_instructions or "").strip(), (parts.agents_instructions or "").strip()
    if claude and claude != _POINTS_TO_AGENTS and claude not in agents:
        yield "CLAUDE.md", claude
    if agents and agents != _POINTS_TO_CLAUDE and (agents not in claude or claude == agents):
        yield "AGENTS.md", agents


def _shows_plan(parts: PromptParts) -> bool:
    if not parts.plan or not parts.plan.strip() or parts.step not in parts.steps:
        return False
    return parts.plan_step in parts.steps[: parts.steps.index(parts.step)]


def accounts_text(accounts: Sequence[EarlierAccount]) -> str:
    """Return the accounts, the newest that fit, below a sentence that says how much they weigh."""
    entries = []
    for one in accounts:
        wrote = f"The agent of step {one.step}{_of_task(one.task)} wrote when it ended"
        if one.check_failed:
            wrote += _CHECK_FAILED
        entries.append(f"{wrote}:\n{quote(head(one.text, limit=MAX_ACCOUNT))}")
    kept = newest_that_fit(entries, limit=MAX_ACCOUNTS)
    if left_out := len(entries) - len(kept):
        kept.insert(0, f"[… the first {left_out} of {len(entries)} accounts are left out …]")
    others = ""
    if any(one.task for one in accounts):
        others = " and of those before it in the sequence"
    return "\n\n".join([_WEIGHT_OF_ACCOUNTS.format(others=others), *kept])


_CHECK_FAILED = " (its work was checked then, and the check failed)"
_WEIGHT_OF_ACCOUNTS = """\
What the agents of earlier runs of this task{others} wrote at their ends, the newest last.
Each is an agent's account of its own work: it may be wrong, or no longer true. The task definition, what
humans decided, and the files as they are now weigh more. Check what you build on."""


def _of_task(title: str) -> str:
    if title:
        return f" of task “{escaped_line(title)}”"
    return ""


def history_text(
    history: Sequence[HistoryEntry], *, apart_from: str = "", since: datetime | None = None
) -> str:
    """Return what humans decided; "" if that is nothing.

    With `since` it is what they have decided later, in steps other than `apart_from`.
    """
    scope, entries = "in this task", []
    for number, entry in enumerate(history, start=1):
        if entry.task:
            scope = "in this sequence of tasks"
        if since and (entry.answered_at < since or entry.step == apart_from):
            continue
        if entry.kind == "cost":
            entries.append(_cost_entry(number, entry))
        elif entry.ended or entry.outcome in ("Answered", "Dismissed"):
            entries.append(_answer_entry(number, entry))
        else:
            entries.append(_verdict_entry(number, entry))
    if not entries:
        return ""
    which = "since then, when other steps asked" if since else "so far"
    return "\n\n".join([f"What humans have decided {scope} {which}. It holds for you too.", *entries])


def _verdict_entry(number: int, entry: HistoryEntry) -> str:
    question, answer, user = map(escaped_line, (entry.question, entry.answer, entry.answered_by))
    verdict = f"{question}: {answer} (by {user})"
    if entry.kind == "approval" and entry.outcome == "Approved":
        verdict = f"{question}: {answer} (by {user}, for that call alone)"
    if entry.since:
        verdict += f". {entry.since}"
    return f"{number}. Step {entry.step}{_of_task(entry.task)}, {_utc(entry.answered_at)}: {verdict}"


def _cost_entry(number: int, entry: HistoryEntry) -> str:
    who, said = escaped_line(entry.answered_by), quote(entry.answer, indent="   ")
    return (
        f"{number}. Step {entry.step}{_of_task(entry.task)}, {_utc(entry.answered_at)}: "
        f"at the soft cost limit {who} decided:\n{said}"
    )


def _answer_entry(number: int, entry: HistoryEntry) -> str:
    task = ""
    if entry.task:
        task = f"Task: {escaped_line(entry.task)}\n   "
    asked = f"   Question:\n{quote(entry.question, indent='   ')}\n"
    label = "Recommended" if entry.ended else "Answer"
    answer = f"   {label}:\n{quote(entry.answer, indent='   ')}"
    for question, text in entry.further:
        answer += f"\n   Question:\n{quote(question, indent='   ')}"
        answer += f"\n   {label}:\n{quote(text, indent='   ')}"
    if entry.ended and entry.answer:
        answer += f"\n   {entry.ended} {NOBODY_CHOSE}"
    elif entry.ended:
        answer = f"   {entry.ended} {taken_by_rule('')}"
    elif entry.outcome == "Dismissed":
        answer = "   No answer: decide it by your own best judgement."
        if entry.answer:
            answer += f" Notes:\n{quote(entry.answer, indent='   ')}"
    # A label alone rarely says what was decided.
    described = [f"{label}: {description}" for label, description in entry.chosen if description.strip()]
    if described:
        answer += "\n   What that means:\n" + "\n".join(quote(text, indent="   ") for text in described)
    if entry.since:
        answer += f"\n   {entry.since}"
    return (
        f"{number}. {task}Step: {entry.step}\n"
        f"   Asked at: {_utc(entry.asked_at)}\n"
        f"   {entry.outcome} at: {_utc(entry.answered_at)}\n"
        f"   {entry.outcome} by: {escaped_line(entry.answered_by)}\n"
        f"{asked}{answer}"
    )


def _utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

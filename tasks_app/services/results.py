"""What came of a task: what its agents said at their ends, and how its checks ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import F, Prefetch, Q, QuerySet

from tasks_app.core.amounts import counted
from tasks_app.core.asked_items import answer_as_told
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.types import PLAN_FILE
from tasks_app.history.events.reading import Events
from tasks_app.models import (
    DecisionEvent,
    DecisionEventKind,
    EventKind,
    Outcome,
    Question,
    Review,
    ReviewThread,
    ReviewVerdict,
    Run,
    Step,
    Task,
    Transition,
)
from tasks_app.prompting.decisions import without_followed_line
from tasks_app.prompting.escaping import head
from tasks_app.prompting.feedback import asks_something
from tasks_app.services.difference import differences_of_step

_MESSAGE_CHARACTERS = 20_000
#: Commands of steps that do what the task says.
_BUILDING_COMMANDS = ("implement", "self")


@dataclass(frozen=True)
class LastMessage:
    """The last message of the agent of a finished run."""

    run: Run
    text: str

    @property
    def title(self) -> str:
        """Return which run it was, whether its check failed, and whether the step was done again since."""
        failed = ", check failed" if self.check_failed else ""
        replaced = ", replaced by a later attempt" if self.is_replaced else ""
        return f"run {self.run.number}, {self.run.reason_label}{failed}{replaced}"

    @property
    def is_replaced(self) -> bool:
        """Whether the step was reset after it, such as by a retry."""
        return self.run.number < self.run.step.first_run

    @property
    def asks(self) -> bool:
        """Whether it ends with a question, which nobody has answered."""
        return asks_something(self.text)

    @property
    def check_failed(self) -> bool:
        """Whether the work that it tells of did not pass."""
        return any(not report.get("passed") for report in self.run.checks or [])


@dataclass(frozen=True)
class StepChanges:
    """The number of files that a step changed, without the plan, and of lines added and removed."""

    files: int = 0
    added: int = 0
    removed: int = 0

    def __str__(self) -> str:
        """Return it in words; empty without changes."""
        if not self.files:
            return ""
        return f"changed {counted(self.files, 'file')} (+{self.added} −{self.removed})"


@dataclass(frozen=True)
class StepAccount:
    """The last messages of a step's runs, the newest run last.

    A run that was sent back often says only what it changed since, so the messages before it count too.
    """

    step: Step
    messages: list[LastMessage]

    @property
    def current(self) -> LastMessage | None:
        """The newest message; None if it is of a replaced attempt."""
        newest = self.messages[-1]
        return None if newest.is_replaced else newest

    @property
    def earlier(self) -> list[LastMessage]:
        """The messages before the current one, the newest first."""
        return [one for one in reversed(self.messages) if one is not self.current]

    def title(self, built: StepAccount) -> str:
        """Return the step's name and, for one other than that which built the result, what it changed."""
        title = f"Step {self.step.name}"
        if self == built or not (changes := str(self.changes)):
            return title
        if self.step.position > built.step.position:
            changes += " after that"
        return f"{title}, {changes}"

    @cached_property
    def changes(self) -> StepChanges:
        """The changes of the step's runs, without changes of other steps between them. Runs git."""
        return changes_of(self.step)


def changes_of(step: Step, *, after: Run | None = None) -> StepChanges:
    """Return what the runs of the step changed, all of them or those after a run of another. Runs git."""
    try:
        found = [file for one in differences_of_step(step, after=after) for file in one.files()]
    except WorkspaceError:  # a commit is lost
        return StepChanges()
    own = [file for file in found if file.path != PLAN_FILE]
    names = {file.path for file in own}
    return StepChanges(len(names), sum(file.added for file in own), sum(file.removed for file in own))


@dataclass(frozen=True)
class StepCheck:
    """A check of the newest run of a step."""

    step: str
    check: str
    passed: bool


@dataclass(frozen=True)
class AnsweredItem:
    """A question of a card and the answer, as readers need them who saw no options.

    `header` is empty if it has none, or one that only repeats the beginning of the question.
    """

    header: str
    asked: str
    answer: str


def answered_items(question: Question) -> list[AnsweredItem]:
    """Return what a settled card asked and what was answered, each chosen option with its description."""
    items = {str(item["question"]): item for item in question.items}
    found = []
    for asked, answer in question.asked_and_answered:
        item = items.get(asked, {})
        given = question.answers.get(asked, "")
        if given and not question.verdict:
            answer = answer_as_told(item, given) + answer.removeprefix(given)
        header = str(item.get("header") or "")
        found.append(AnsweredItem("" if asked.startswith(header) else header, asked, answer))
    return found


def requested_changes(tasks: Sequence[Task]) -> list[Review]:
    """Return the reviews that asked for changes, in order, with their threads and comments.

    They were written when the result was there, so they go before what was answered earlier.
    """
    sent = Review.objects.filter(task__in=tasks, verdict=ReviewVerdict.REQUEST_CHANGES)
    threads = Prefetch("threads", ReviewThread.objects.with_comments())
    return list(sent.select_related("author", "task").prefetch_related(threads).order_by("task", "number"))


def messages_to_agents(tasks: Sequence[Task]) -> list[Transition]:
    """Return what people wrote to the agents when they had the tasks go on, in order.

    It holds where it differs from what was answered before.
    """
    written = Transition.objects.filter(task__in=tasks, step=None).exclude(message="")
    return list(written.select_related("actor").order_by("at", "pk"))


@dataclass(frozen=True)
class NamedDecision:
    """A decision that an agent followed, or of which it said that it does not fit.

    `kept` is the event by which a human found it right after that; None if nobody did.
    """

    said: DecisionEvent
    kept: DecisionEvent | None

    @property
    def is_unfit(self) -> bool:
        return self.said.kind == DecisionEventKind.UNFIT

    @property
    def why_kept(self) -> str:
        """The note of the human who kept it; "" if an answer did: then the note is the agent's reason."""
        if not self.kept or self.kept.question_id:
            return ""
        return self.kept.note

    @property
    def kept_in_words(self) -> str:
        """Return who kept it and why; empty if nobody did."""
        if not self.kept or not self.kept.user:
            return ""
        said = f"kept by {self.kept.user.shown_name}"
        return f"{said}: {self.why_kept}" if self.why_kept else said


def named_decisions(tasks: Sequence[Task]) -> list[NamedDecision]:
    """Return what agents said of decisions, each once: which they followed, and then which do not fit.

    One that an agent followed and found unfit later was not followed in the end.
    """
    said = DecisionEvent.objects.filter(
        task__in=tasks, kind__in=[DecisionEventKind.FOLLOWED, DecisionEventKind.UNFIT]
    )
    rows = said.select_related("decision").prefetch_related("decision__replaced_by")
    rows = rows.order_by("kind", "decision__number", "at")
    each = {(row.kind, row.decision_id, row.note): row for row in rows}.values()
    unfit = {row.decision_id: row.at for row in each if row.kind == DecisionEventKind.UNFIT}
    kept = DecisionEvent.objects.filter(decision__in=list(unfit), kind=DecisionEventKind.KEPT)
    newest = {row.decision_id: row for row in kept.select_related("user").order_by("at")}
    found = []
    for row in each:
        if row.kind == DecisionEventKind.UNFIT:
            later = newest.get(row.decision_id)
            found.append(NamedDecision(row, later if later and later.at > row.at else None))
        elif row.at >= unfit.get(row.decision_id, row.at):
            found.append(NamedDecision(row, None))
    return found


def accounts_of(tasks: Sequence[Task]) -> list[StepAccount]:
    """Return the accounts of the tasks' steps in order; steps whose agents said nothing are left out."""
    finished = _finished_runs(tasks)
    ends = Events(Q(run__in=finished), related="run__step__task__project").of_kinds([EventKind.RESULT])
    newest = {end.run_id: end for end in ends.all() if not end.payload.get("is_error")}
    accounts: dict[int, StepAccount] = {}
    # The ids of a task's steps ascend with their positions.
    for end in sorted(newest.values(), key=lambda end: (end.run.step_id, end.run.number)):
        if text := without_followed_line(str(end.payload.get("text", ""))):
            account = accounts.setdefault(end.run.step_id, StepAccount(end.run.step, []))
            account.messages.append(LastMessage(end.run, head(text, limit=_MESSAGE_CHARACTERS)))
    return list(accounts.values())


def _finished_runs(tasks: Sequence[Task]) -> QuerySet[Run]:
    """Return the finished runs of the tasks, without runs whose work was put back."""
    runs = Run.objects.filter(step__task__in=tasks, outcome=Outcome.FINISHED)
    return runs.filter(number__gte=F("step__kept_from"))


def building_account_first(accounts: Sequence[StepAccount]) -> list[StepAccount]:
    """Return the accounts of one task, the step that built the result first.

    It is the last step with the command `implement` or `self`. Other pipelines have none; there it is the
    step that changed the most lines, apart from the plan, or else the last one.
    """
    building = [one for one in accounts if one.step.config.get("command") in _BUILDING_COMMANDS]
    if not building and len(accounts) > 1:
        lines = [one.changes.added + one.changes.removed for one in accounts]
        building = [accounts[lines.index(max(lines))]] if any(lines) else [accounts[-1]]
    return [*building[-1:], *(one for one in accounts if one not in building[-1:])]


def account_after_review(accounts: Sequence[StepAccount]) -> StepAccount | None:
    """Return the account of the step that dealt with the newest request for changes.

    None if that is the first account, of the step that built the result, or if nothing was requested since.
    """
    built = accounts[0].messages[-1].run
    sent = Review.objects.filter(task=built.step.task_id, verdict=ReviewVerdict.REQUEST_CHANGES)
    request = sent.filter(sent_at__gt=built.started_at).order_by("number").last()
    if request is None or request.sent_at is None:
        return None
    for one in accounts[1:]:
        if one.step.pk == request.step_id and one.messages[-1].run.started_at > request.sent_at:
            return one
    return None


def checks_of(tasks: Sequence[Task]) -> list[StepCheck]:
    """Return the checks of the newest finished run of each step, in the order of the steps.

    One that failed is of a task that was finished early.
    """
    return [one for checks in checks_by_task(tasks).values() for one in checks]


def checks_by_task(tasks: Sequence[Task]) -> dict[int, list[StepCheck]]:
    """Return what `checks_of` does by task id; tasks without checks are left out."""
    checked = _finished_runs(tasks).exclude(checks=None).select_related("step").defer("prompt")
    newest = {run.step_id: run for run in checked.order_by("step__task", "step__position", "number")}
    found: dict[int, list[StepCheck]] = {}
    for run in newest.values():
        for report in run.checks or []:
            if report.get("check"):
                check = StepCheck(run.step.name, str(report["check"]), bool(report.get("passed")))
                found.setdefault(run.step.task_id, []).append(check)
    return found


def checks_in_words(checks: Sequence[StepCheck]) -> str:
    """Return how many passed, such as “2 of 3 checks passed”; empty without checks."""
    if not checks:
        return ""
    return f"{sum(one.passed for one in checks)} of {counted(len(checks), 'check')} passed"


def later_than_checks(task: Task) -> str:
    """Return a sentence on the steps that changed files after the last check had run; "" if none did.

    The last check need not be that of the last step that has one: after a review an earlier step runs again.
    """
    ran = _finished_runs([task]).exclude(checks=None).select_related("step").order_by("-pk")
    last = next((run for run in ran.defer("prompt") if has_checks(run.step)), None)
    if last is None:
        return ""
    others = task.steps.exclude(pk=last.step_id).exclude(head_commit="")
    later = [step.name for step in others if changes_of(step, after=last).files]
    if not later:
        return ""
    who = f"step “{later[0]}”" if len(later) == 1 else f"steps “{'”, “'.join(later)}”"
    return f"The last ran in step “{last.step.name}”; {who} changed files after that."


def has_checks(step: Step) -> bool:
    """Return whether the work of the step is checked."""
    return any(one.get("type") != "none" for one in step.config.get("check") or ())

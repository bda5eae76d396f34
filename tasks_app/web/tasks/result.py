"""The result of a task or a sequence, for its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.text import in_one_line
from tasks_app.git import ChangedFile
from tasks_app.history.events.calls import failed_approvals
from tasks_app.models import (
    Decision,
    Question,
    Review,
    ReviewThread,
    Sequence,
    Task,
    Transition,
)
from tasks_app.services.decisions.answering import decided_by_answers
from tasks_app.services.difference import difference_of
from tasks_app.services.results import (
    NamedDecision,
    StepAccount,
    StepCheck,
    account_after_review,
    accounts_of,
    answered_items,
    building_account_first,
    checks_of,
    messages_to_agents,
    named_decisions,
    requested_changes,
)
from tasks_app.services.reviews import approvals_of
from tasks_app.web.rendering.words import headline

#: Files that are listed; the others are counted.
_FILES = 12
#: Rows around the changed ones in a diff, and the heights that the first file's may have.
_CONTEXT_ROWS = 7
_ROWS = (4, 8, 12, 16, 20, 24)


@dataclass(frozen=True)
class ShownChange:
    """A changed file, with its path as it is shown."""

    file: ChangedFile
    name: str

    @property
    def query(self) -> str:
        """The parameters of its place on the page of changes."""
        names = {"file": self.file.path, "was": self.file.old_path}
        return urlencode({key: name for key, name in names.items() if name}, quote_via=quote, safe="")

    @property
    def rows(self) -> int:
        """About how many rows its diff has, so that nothing moves when that comes; the others scroll."""
        rows = self.file.added + self.file.removed
        if self.file.status not in ("A", "D"):
            rows += _CONTEXT_ROWS
        return next((most for most in _ROWS if rows <= most), _ROWS[-1])


@dataclass(frozen=True)
class Decided:
    """One of a card's questions and what was decided, in one line each.

    `made` are the project's decisions that its answer made or changed; those of which nothing tells to which
    of the card's questions they belong stand behind the last one.
    `call_failed`: the call was approved, made, and failed.
    """

    question: Question
    headline: str
    answer: str
    header: str
    made: list[tuple[str, Decision]]
    call_failed: bool


@dataclass(frozen=True)
class ShownAccount:
    """The account that a step's agents gave at their ends; folded unless it `is_open`."""

    title: str
    said: StepAccount
    is_open: bool


@dataclass(frozen=True)
class Result:
    """The result of a done task or sequence.

    `accounts` begin with that of the step which built the result; a sequence has one of each task.
    `decisions` are what people settled in it, `requests` the reviews that asked for changes, `named` the
    project's decisions that agents named. `files` are up to 12; `trouble` says why they cannot be listed.
    `approvals`: of the newest commit.
    """

    accounts: list[ShownAccount]
    files: list[ShownChange]
    file_count: int
    added: int
    removed: int
    checks: list[StepCheck]
    decisions: list[Decided]
    requests: list[Review]
    messages: list[Transition]
    named: list[NamedDecision]
    approvals: list[Review]
    open_threads: int
    trouble: str = ""

    @property
    def may_have_changes(self) -> bool:
        """Return whether there is something to review and publish, or it is not known."""
        return self.file_count > 0 or bool(self.trouble)

    @property
    def more_files(self) -> int:
        return self.file_count - len(self.files)


def result_of(done: Task | Sequence) -> Result | None:
    """Return the result; None unless it is done."""
    if done.phase != Phase.DONE:
        return None
    tasks = [done] if isinstance(done, Task) else list(done.tasks.order_by("pk"))
    files, trouble = _changed_files(done)
    settled = (
        Question.objects.settled()
        .filter(task__in=tasks)
        .select_related("answered_by", "applied", "taken_back_by", "task")
    )
    return Result(
        accounts=shown_accounts(done, tasks),
        files=[ShownChange(file, in_one_line(file.path)) for file in files[:_FILES]],
        file_count=len(files),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        checks=list(dict.fromkeys(checks_of(tasks))),
        decisions=list(_decided(settled.order_by("task", "number"))),
        requests=requested_changes(tasks),
        messages=messages_to_agents(tasks),
        named=named_decisions(tasks),
        approvals=approvals_of(tasks[-1]) if tasks else [],
        open_threads=ReviewThread.objects.open().filter(task__in=tasks).count(),
        trouble=trouble,
    )


def _decided(settled: Iterable[Question]) -> Iterator[Decided]:
    questions = list(settled)
    made, failed = decided_by_answers(questions), failed_approvals(questions)
    for one in questions:
        for item in answered_items(one):
            asked = headline(item.asked) if one.takes_answer else one.title.sentence
            of_item = made.get(one.pk, {}).get(item.asked, [])
            yield Decided(one, asked, item.answer, item.header, of_item, one.pk in failed)


def shown_accounts(done: Task | Sequence, tasks: list[Task]) -> list[ShownAccount]:
    accounts = accounts_of(tasks)
    if isinstance(done, Task):
        ordered = building_account_first(accounts)
        if not ordered:
            return []
        built, changed = ordered[0], account_after_review(ordered)
        shown = [ShownAccount(one.title(built), one, one is built) for one in ordered if one is not changed]
        if changed:
            shown.insert(0, ShownAccount(f"Step {changed.step.name}, after a review", changed, True))
        return shown
    shown = []
    for task in tasks:
        for built in building_account_first([one for one in accounts if one.step.task_id == task.pk])[:1]:
            shown.append(ShownAccount(task.title, built, task == tasks[-1]))
    return shown


def _changed_files(done: Task | Sequence) -> tuple[list[ChangedFile], str]:
    """Return the changed files, or why they cannot be listed."""
    difference = difference_of(done)
    if difference is None:
        return [], ""
    try:
        return list(difference.files()), ""
    except WorkspaceError as error:
        return [], str(error)

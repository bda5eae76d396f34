"""Answering a question by a decision, without a human (D5).

Each condition is a small function that returns what is in the way, or "". Those that only read rows are
checked again in the transaction that stores the answer; those that run git come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction

from tasks_app.agent.gate.patterns import allowed
from tasks_app.core.errors import NotOpen, WorkspaceError
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.phases import Phase
from tasks_app.core.similar_questions import normalised_label
from tasks_app.git import Repository, changed_files, committed_tree, root_names
from tasks_app.models import (
    Action,
    Channel,
    Decision,
    DecisionEventKind,
    DecisionScope,
    Project,
    Question,
    QuestionKind,
    QuestionState,
    Task,
    counted_confirmations,
    paths,
)
from tasks_app.services.decisions.answering import related_decisions
from tasks_app.services.decisions.changes import lock_decision, record_event
from tasks_app.services.decisions.citing import UNREAD, blobs_at, texts_of
from tasks_app.services.difference import base_of
from tasks_app.services.questions.earlier_answers import in_own_labels
from tasks_app.services.questions.question_outcomes import store_outcome

#: How many people must have confirmed a decision, the one who decided among them.
CONFIRMERS = 2

#: Returns what keeps the decision from answering the question; "" if nothing does.
Condition = Callable[[Decision, Question], str]


@dataclass(frozen=True)
class DecisionMatch:
    """The decision that answered the same question before, and why it is not applied ("" if it is)."""

    decision: Decision
    blocker: str = ""


def find_match(question: Question) -> DecisionMatch | None:
    """Return the decision that could answer an open question; None without one. May run git."""
    decision = _same_decision(question)
    if decision is None:
        return None
    return DecisionMatch(decision, _blocker(decision, question, (*_IN_ROWS, *_IN_REPOSITORY)))


def applicable(question: Question) -> Decision | None:
    """Return the decision that answers the question without a human; None if a human must. Runs git."""
    found = find_match(question)
    return found.decision if found and not found.blocker else None


def apply_decision(question: Question) -> bool:
    """Answer the question if a decision may. Return whether it did.

    A human who answers at the same time, and whoever cancels the task, or retires the decision, either comes
    first, or finds the question answered.
    """
    decision = applicable(question)
    if decision is None:
        return False
    try:
        with transaction.atomic():
            return _store_if_it_still_holds(question, decision)
    except NotOpen:
        return False


def _store_if_it_still_holds(question: Question, decision: Decision) -> bool:
    # Rows are locked in the order in which a human's answer locks them: task, decision, project.
    Task.objects.select_for_update().get(pk=question.task_id)
    decision = lock_decision(decision)
    decision.project = Project.objects.select_for_update(no_key=True).get(pk=decision.project_id)
    if _same_decision(question) != decision or _blocker(decision, question, _IN_ROWS):
        return False
    outcome = {
        "state": QuestionState.ANSWERED,
        "answers": answers_of(decision, question),
        "notes": "",
        "applied": decision,
    }
    store_outcome(question, outcome, action=Action.ANSWERED, by=None, via=Channel.DECISION)
    record_event(decision, DecisionEventKind.APPLIED, task=question.task, question=question)
    return True


def apply_decisions(task: Task) -> int:
    """Answer the open questions of a task that decisions may answer. Return how many."""
    if task.phase != Phase.WAITING_FOR_INPUT or not task.project.apply_decisions:
        return 0
    return sum(map(apply_decision, task.questions.open_of(task)))


def _same_decision(question: Question) -> Decision | None:
    """Return the one active decision that the question concerns, if it answered the same question."""
    if question.kind != QuestionKind.CLARIFICATION or not question.is_open:
        return None
    related = related_decisions(question)
    return related[0].decision if len(related) == 1 and related[0].same else None


def _blocker(decision: Decision, question: Question, conditions: Sequence[Condition]) -> str:
    return next(filter(None, (condition(decision, question) for condition in conditions)), "")


def _project_allows(decision: Decision, question: Question) -> str:
    return "" if decision.project.apply_decisions else "the project does not allow it"


def _is_no_exception(decision: Decision, question: Question) -> str:
    return "it is an exception to another decision" if decision.exception_to_id else ""


def _has_no_exceptions(decision: Decision, question: Question) -> str:
    return "there are exceptions to it" if decision.exceptions.active().exists() else ""


def _answers_every_item(decision: Decision, question: Question) -> str:
    asked = {str(item["question"]) for item in question.items}
    answered = asked and asked == answers_of(decision, question).keys()
    return "" if answered else "it has no answer to a part of the question"


def _is_confirmed(decision: Decision, question: Question) -> str:
    confirmations = decision.events.filter(counted_confirmations())
    missing = CONFIRMERS - confirmations.order_by().values("user").distinct().count()
    return f"it needs {_NUMBERS[missing]} to confirm it" if missing > 0 else ""


_NUMBERS = {1: "one more person", 2: "two people"}


def _needs_no_review(decision: Decision, question: Question) -> str:
    return "it is to be reviewed" if decision.why_review else ""


def _was_not_taken_back(decision: Decision, question: Question) -> str:
    taken_back = decision.events.filter(kind=DecisionEventKind.TAKEN_BACK, task=question.task_id)
    return "its answer was taken back in this task" if taken_back.exists() else ""


def _holds_for_step(decision: Decision, question: Question) -> str:
    other = decision.scope == DecisionScope.STEP and decision.step != question.step.name
    return f"it holds for step {decision.step} only" if other else ""


def _holds_for_files(decision: Decision, question: Question) -> str:
    """Require that all files concerned, at least one, are within the decision's paths."""
    if decision.scope != DecisionScope.PATHS:
        return ""
    files = _files_concerned(question)
    if files is None:
        return "the files of the task cannot be read"
    outside = next((file for file in files if not allowed(file, decision.paths)), None)
    if outside is not None:
        return f"it does not hold for {outside}"
    return "" if files else "no file shows whether it holds here"


def _files_concerned(question: Question) -> list[str] | None:
    """Return what the task has changed and the question names; None if git cannot say. Runs git."""
    task, repository = question.task, paths.repository(question.task.project)
    base = base_of(task)
    try:
        named = _in_tree(paths_named_in(texts_of(question)), repository, task.head_commit or base)
        changed = changed_files(repository, base=base, head=task.head_commit) if task.head_commit else []
    except WorkspaceError:
        return None
    return [*named, *(name for one in changed for name in (one.path, one.old_path) if name)]


def _in_tree(named: Collection[str], repository: Repository, commit: str) -> list[str]:
    """Return the names that may mean something in a commit: “and/or” and “HTTP/2” are words as well.

    A name with folders needs the first of them, so that a new file counts. One without stands for each file
    of that name, in whatever folder.
    """
    roots = root_names(repository, commit=commit)
    with_folder = [name for name in named if name.partition("/")[0] in roots and "/" in name]
    alone = {name for name in named if "/" not in name}
    files = [file.path for file in committed_tree(repository, commit=commit)] if alone else []
    return [*with_folder, *(file for file in files if file.rpartition("/")[2] in alone)]


def _code_is_unchanged(decision: Decision, question: Question) -> str:
    """Require the cited files as they were, on the project's branch and in the task's result so far."""
    if not decision.cites:
        return ""
    task, project = question.task, question.task.project
    cited = {one["path"]: one["blob"] for one in decision.cites}
    if UNREAD in cited.values():
        return "the code that it cites could not be read when it was decided"
    try:
        heads = [paths.repository(project).head(project.branch), task.head_commit or base_of(task)]
        unchanged = all(heads) and all(blobs_at(project, head, cited) == cited for head in heads)
    except WorkspaceError:
        return "the code that it cites cannot be read"
    return "" if unchanged else "the code that it cites has changed"


_IN_ROWS: tuple[Condition, ...] = (
    _project_allows,
    _is_no_exception,
    _has_no_exceptions,
    _answers_every_item,
    _needs_no_review,
    _was_not_taken_back,
    _holds_for_step,
    _is_confirmed,
)
_IN_REPOSITORY: tuple[Condition, ...] = (_holds_for_files, _code_is_unchanged)


def answers_of(decision: Decision, question: Question) -> Mapping[str, str]:
    """Return the decision's answers by the items of this question, with this question's labels."""
    known = {normalised_label(asked): answer for asked, answer in decision.answers.items()}
    found = {}
    for item in question.items:
        asked = str(item["question"])
        answer = decision.answers.get(asked) or known.get(normalised_label(asked), "")
        if answer.strip():
            found[asked] = in_own_labels(item, answer)
    return found

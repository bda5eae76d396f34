"""Decisions that answer questions: at once, and later if a worker died after its agent had asked (D5).

Conditions that only read rows are checked again in the transaction that stores the answer; those that run git
come before it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.core.asked_items import in_own_labels
from tasks_app.core.errors import NotOpen, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.similar_questions import question_digest, same_text
from tasks_app.models import (
    SHOWN_WITH,
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
from tasks_app.services.decisions.changes import lock_decision, record_event
from tasks_app.services.decisions.citing import (
    UNREAD,
    blobs_at,
    decisions_named_in_question,
    related_decisions,
)
from tasks_app.services.difference import base_of
from tasks_app.services.questions.concerned_files import named_and_changed_files
from tasks_app.services.questions.question_outcomes import store_outcome

#: How many people must have confirmed a decision, the one who decided among them.
CONFIRMERS = 2

_NUMBERS = {1: "one more person", 2: "two people"}


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
    blocker = (
        _blocker_in_rows(decision, question)
        or _blocker_in_paths(decision, question)
        or _blocker_in_code(decision, question)
    )
    return DecisionMatch(decision, blocker)


def applicable(question: Question) -> Decision | None:
    """Return the decision that answers the question without a human; None if a human must. Runs git."""
    found = find_match(question)
    if found is None or found.blocker:
        return None
    return found.decision


def apply_decision(question: Question) -> bool:
    """Answer the question if a decision may. Return whether it did.

    Concurrent answers, cancellations and retirements are serialised: the first one wins.
    """
    decision = applicable(question)
    if decision is None:
        return False
    try:
        with transaction.atomic():
            # Rows are locked in the order in which a human's answer locks them: task, decision, project.
            Task.objects.select_for_update().get(pk=question.task_id)
            decision = lock_decision(decision)
            decision.project = Project.objects.select_for_update(no_key=True).get(pk=decision.project_id)
            if _same_decision(question) != decision or _blocker_in_rows(decision, question):
                return False
            outcome = {
                "state": QuestionState.ANSWERED,
                "answers": answers_of(decision, question),
                "notes": "",
                "applied": decision,
            }
            store_outcome(question, outcome, action=Action.ANSWERED, by=None, via=Channel.DECISION)
            record_event(decision, DecisionEventKind.APPLIED, task=question.task, question=question)
    except NotOpen:
        return False
    return True


def apply_decisions(task: Task) -> int:
    """Answer the open questions of a task that decisions may answer. Return how many."""
    if task.phase != Phase.WAITING_FOR_INPUT or not task.project.overrides.get("apply_decisions"):
        return 0
    return sum(map(apply_decision, task.questions.open_of(task)))


def _same_decision(question: Question) -> Decision | None:
    """Return the one decision that the question concerns, if it holds and answered the same question."""
    if question.kind != QuestionKind.CLARIFICATION or not question.is_open:
        return None
    related = related_decisions(question)
    if len(related) != 1 or not related[0].same:
        return None
    decision = related[0].decision
    # Of a decision that it names and that does not hold any more, the answer may be out of date.
    if decisions_named_in_question(question) <= {decision.number}:
        return decision
    return None


def _blocker_in_rows(decision: Decision, question: Question) -> str:
    """Return why the decision must not answer the question by what rows say; "" if it may."""
    if not decision.project.overrides.get("apply_decisions"):
        return "the project does not allow it"
    if decision.exception_to_id:
        return "it is an exception to another decision"
    if decision.exceptions.active().exists():
        return "there are exceptions to it"
    asked = {str(item["question"]) for item in question.items}
    if not asked or asked != answers_of(decision, question).keys():
        return "it has no answer to a part of the question"
    if decision.why_review:
        return "it is to be reviewed"
    if decision.events.filter(kind=DecisionEventKind.TAKEN_BACK, task=question.task_id).exists():
        return "its answer was taken back in this task"
    if decision.scope == DecisionScope.STEP and decision.step != question.step.name:
        return f"it holds for step {decision.step} only"
    confirmers = decision.events.filter(counted_confirmations()).order_by().values("user").distinct()
    if missing := max(CONFIRMERS - confirmers.count(), 0):
        return f"it needs {_NUMBERS[missing]} to confirm it"
    return ""


def _blocker_in_paths(decision: Decision, question: Question) -> str:
    """Return why a decision for paths does not hold here: at least one file is concerned, all are in it."""
    if decision.scope != DecisionScope.PATHS:
        return ""
    try:
        named, changed = named_and_changed_files(question)
    except WorkspaceError:
        return "the files of the task cannot be read"
    files = [*named, *changed]
    if not files:
        return "no file shows whether it holds here"
    outside = next((file for file in files if not allowed(file, decision.paths)), None)
    if outside is not None:
        return f"it does not hold for {outside}"
    return ""


def _blocker_in_code(decision: Decision, question: Question) -> str:
    """Return whether cited files changed, on the project's branch or in the task's result so far; or ""."""
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
    if not unchanged:
        return "the code that it cites has changed"
    return ""


def answers_of(decision: Decision, question: Question) -> Mapping[str, str]:
    """Return the decision's answers by the items of this question, with this question's labels."""
    known = {same_text(asked): answer for asked, answer in decision.answers.items()}
    found = {}
    for item in question.items:
        asked = str(item["question"])
        answer = known.get(same_text(asked), "")
        if answer.strip():
            found[asked] = in_own_labels(item, answer)
    return found


logger = logging.getLogger(__name__)


#: Seconds after which a question is looked at again although nothing seems to have changed.
LOOK_AGAIN = 600.0


def apply_missed_decisions() -> None:
    """Have decisions answer for tasks without a worker, which may have died after its agent had asked.

    Each worker calls this every few seconds, so it is cheap: one query if no question waits in a project that
    has decisions to apply, two if none of these decisions answered such a question before. A question for
    which nothing was applied is left alone until something has changed, or for LOOK_AGAIN.
    """
    missed = _missed_questions()
    for pk in _refused.keys() - missed.keys():
        del _refused[pk]
    due = []
    for pk, state in missed.items():
        known, at = _refused.get(pk, (None, 0.0))
        if known != state or time.monotonic() - at >= LOOK_AGAIN:
            due.append(pk)
    if not due:
        return
    for question in Question.objects.filter(pk__in=due).select_related(*SHOWN_WITH):
        try:
            apply_decision(question)
        except Exception:  # one question must not keep the others waiting; the next call tries again
            logger.exception("no decision could be applied to question %s", question.pk)
        else:
            _refused[question.pk] = (missed[question.pk], time.monotonic())


#: What a question, its task, the code and the decisions were when nothing was applied, and when that was.
_refused: dict[int, tuple[object, float]] = {}


def _missed_questions() -> dict[int, object]:
    """Return open questions that a confirmed decision answered before, with all on which the rest depends."""
    confirmed = _confirmed()
    waiting = Task.objects.free().filter(
        phase=Phase.WAITING_FOR_INPUT,
        project__overrides__apply_decisions=True,
        project__in=confirmed.filter(project__overrides__apply_decisions=True).values("project"),
    )
    asked = Question.objects.open().filter(kind=QuestionKind.CLARIFICATION, task__in=waiting)
    rows = asked.order_by("pk").values_list(
        "pk", "task__project", "items",
        "asked_at", "task__head_commit", "task__project__branch", "task__project__fetched_at",
    )  # fmt: skip
    by_key = defaultdict(list)
    for pk, project, items, *state in rows:
        by_key[project, question_digest(items)].append((pk, state))
    if not by_key:
        return {}
    projects, keys = zip(*by_key, strict=True)
    decisions = confirmed.filter(project__in=set(projects), question_key__in=set(keys)).order_by("pk")
    found: dict[int, list[object]] = defaultdict(list)
    for pk, project, key, cites in decisions.values_list("pk", "project", "question_key", "cites"):
        for question, state in by_key.get((project, key), ()):
            found[question].append([pk, cites, state])
    return dict(found)


def _confirmed() -> QuerySet[Decision]:
    """Return the decisions that enough people confirmed and nobody needs to review, without exceptions."""
    exceptions = Decision.objects.active().filter(exception_to=OuterRef("pk"))
    made = Decision.objects.active().exclude(question_key="").filter(exception_to=None, review_reason="")
    due = Q(review_after__lte=timezone.localdate())
    return made.exclude(due).exclude(Exists(exceptions)).with_counts().filter(Q(confirmers__gte=CONFIRMERS))

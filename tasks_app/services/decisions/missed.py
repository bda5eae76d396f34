"""Decisions that answer a question later, because the worker died after its agent had asked (D5)."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.similar_questions import question_digest
from tasks_app.models import SHOWN_WITH, Decision, Question, QuestionKind, Task
from tasks_app.services.decisions.applying import CONFIRMERS, apply_decision

logger = logging.getLogger(__name__)

#: Seconds after which a question is looked at again although nothing seems to have changed.
LOOK_AGAIN = 600.0


def apply_missed_decisions() -> None:
    """Have decisions answer for tasks on which no worker works: theirs may have died after it had asked.

    Each worker calls this every few seconds, so it is cheap: one query if no question waits in a project that
    has decisions to apply, two if none of these decisions answered such a question before. A question for
    which nothing was applied is left alone until something has changed, or for LOOK_AGAIN.
    """
    missed = _missed_questions()
    for pk in _refused.keys() - missed.keys():
        del _refused[pk]
    due = [pk for pk, state in missed.items() if not _was_refused_lately(pk, state)]
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


def _was_refused_lately(pk: int, state: object) -> bool:
    known, at = _refused.get(pk, (None, 0.0))
    return known == state and time.monotonic() - at < LOOK_AGAIN


def _missed_questions() -> dict[int, object]:
    """Return open questions that a confirmed decision answered before, with all on which the rest depends."""
    by_key = defaultdict(list)
    for pk, project, items, *state in _waiting_questions():
        by_key[project, question_digest(items)].append((pk, state))
    if not by_key:
        return {}
    projects, keys = zip(*by_key, strict=True)
    decisions = _confirmed().filter(project__in=set(projects), question_key__in=set(keys)).order_by("pk")
    found: dict[int, list[object]] = defaultdict(list)
    for pk, project, key, cites in decisions.values_list("pk", "project", "question_key", "cites"):
        for question, state in by_key.get((project, key), ()):
            found[question].append([pk, cites, state])
    return dict(found)


def _waiting_questions() -> Iterable[tuple[Any, ...]]:
    """Return id, project, items and state of the open questions in projects that have confirmed decisions."""
    waiting = Task.objects.free().filter(
        phase=Phase.WAITING_FOR_INPUT,
        project__apply_decisions=True,
        project__in=_confirmed().filter(project__apply_decisions=True).values("project"),
    )
    asked = Question.objects.open().filter(kind=QuestionKind.CLARIFICATION, task__in=waiting)
    return asked.order_by("pk").values_list(
        "pk", "task__project", "items",
        "asked_at", "task__head_commit", "task__project__branch", "task__project__fetched_at",
    )  # fmt: skip


def _confirmed() -> QuerySet[Decision]:
    """Return the decisions that enough people confirmed and nobody needs to review, without exceptions."""
    exceptions = Decision.objects.active().filter(exception_to=OuterRef("pk"))
    made = Decision.objects.active().exclude(question_key="").filter(exception_to=None, review_reason="")
    due = Q(review_after__lte=timezone.localdate())
    return made.exclude(due).exclude(Exists(exceptions)).with_counts().filter(Q(confirmers__gte=CONFIRMERS))

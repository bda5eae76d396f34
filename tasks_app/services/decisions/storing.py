"""Writing what an answer means for decisions, in its transaction, and taking it back with the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db.models import QuerySet

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionScope,
    DecisionState,
    Question,
    User,
)
from tasks_app.services.decisions.answering import PreparedDecisions, PreparedItem, Stance
from tasks_app.services.decisions.changes import (
    close,
    confirm_by,
    lock_decision,
    record_event,
    replace_by,
    store,
    subject_of,
    supersede,
)
from tasks_app.services.decisions.content import DecisionContent


def store_with_answer(question: Question, prepared: PreparedDecisions, *, by: User) -> list[Decision]:
    """Store what was prepared, and return the new decisions. Call it in the transaction of the answer.

    Raises BadInput if a decision that the answer is about was replaced or retired meanwhile.
    """
    now = _lock_decisions(decision for item in prepared.items for decision, _ in item.stances)
    for decision in now.values():
        if not decision.is_active:
            raise BadInput(
                f"{decision.label} is {decision.get_state_display()} by now; look at the question again",
                where="decisions",
            )
    made = []
    for item in prepared.items:
        writing = _AnswerRecorder(question, item, by)
        for decision, said in item.stances:
            writing.apply_stance(Stance(said.stance), now[decision.pk], said.paths)
        made.append(writing.made_decision())
    return [one for one in made if one]


def _lock_decisions(decisions: Iterable[Decision]) -> dict[int, Decision]:
    """Lock the decisions, by their ids, always in the same order: else two answers wait for each other."""
    by_id = {one.pk: one for one in decisions}
    return {pk: lock_decision(by_id[pk]) for pk in sorted(by_id)}


class _AnswerRecorder:
    """Writes the stances of one item, one by one, and then its new decision if none of them made it."""

    def __init__(self, question: Question, prepared: PreparedItem, by: User) -> None:
        self._question, self._prepared, self._by = question, prepared, by
        self._made: Decision | None = None
        self._exception_to: Decision | None = None

    def apply_stance(self, stance: Stance, decision: Decision, narrowed: Sequence[str]) -> None:
        """Write what the answer means for a locked decision."""
        if stance is Stance.NARROW:
            self._narrow(decision, narrowed)
        elif stance is Stance.EXCEPTION:
            self._exception_to = decision
            record_event(
                decision, DecisionEventKind.EXCEPTION, by=self._by, task=self._question.task,
                question=self._question,
            )  # fmt: skip
        elif stance is Stance.SUPERSEDE or (stance is Stance.AGREE and self._rewords(decision)):
            self._supersede(decision)
        elif stance is Stance.AGREE:
            confirm_by(decision, self._by, question=self._question)

    def made_decision(self) -> Decision | None:
        """Return the new decision; None if the answer is for this task only."""
        content, project = self._prepared.content, self._question.task.project
        if content and self._made is None:
            self._made = store(
                project, content, by=self._by, answered=self._question, exception_to=self._exception_to,
                **self._prepared.values,
            )  # fmt: skip
        return self._made

    def _rewords(self, decision: Decision) -> bool:
        """Return whether the answer agrees with the decision, but in other words or elsewhere."""
        content = self._prepared.content
        same = decision.question_key and decision.question_key == self._prepared.values.get("question_key")
        return bool(content and same and content != DecisionContent.of(decision))

    def _supersede(self, decision: Decision) -> None:
        if self._made is None and self._prepared.content:
            self._made = replace_by(
                decision, self._prepared.content, by=self._by, answered=self._question,
                **self._prepared.values,
            )  # fmt: skip
        elif self._made is not None:
            supersede(
                decision, self._made, by=self._by, kind=DecisionEventKind.SUPERSEDED, answered=self._question
            )

    def _narrow(self, decision: Decision, narrowed: Sequence[str]) -> None:
        content = replace(
            DecisionContent.of(decision), scope=DecisionScope.PATHS, paths=tuple(narrowed), step=""
        )
        replace_by(
            decision, content, by=self._by, kind=DecisionEventKind.NARROWED, answered=self._question,
            cites=decision.cites, question=decision.question, question_key=decision.question_key,
            answers=decision.answers,
        )  # fmt: skip


def withdraw_with_answer(question: Question, *, by: User) -> None:
    """Retire the decisions that came from an answer which is taken back, and restore those that it ended.

    What others have decided since stays: a decision that they replaced or retired, and its successors. Call
    it in the transaction that opens the question again.
    """
    events = DecisionEvent.objects.filter(question=question, at__gte=question.answered_at)
    made = Decision.objects.filter(pk__in=_decisions_of(events, DecisionEventKind.DECIDED))
    ended = Decision.objects.filter(
        pk__in=_decisions_of(events, DecisionEventKind.SUPERSEDED, DecisionEventKind.NARROWED)
    )
    now = _lock_decisions([*made, *ended])
    for one in made:
        _retire(now[one.pk], question, by=by)
    for one in ended:
        _restore(now[one.pk], question, by=by)
    question.decision_events.filter(kind__in=["confirmed", "exception"]).delete()


def _decisions_of(events: QuerySet[DecisionEvent], *kinds: DecisionEventKind) -> list[int]:
    return sorted(events.filter(kind__in=kinds).order_by().values_list("decision", flat=True).distinct())


def _retire(decision: Decision, question: Question, *, by: User) -> None:
    if not decision.is_active:
        return
    close(decision, DecisionState.RETIRED)
    note = f"The answer to question {question.number} was taken back."
    record_event(decision, DecisionEventKind.RETIRED, by=by, question=question, note=note)
    record(
        Action.DECISION_RETIRED, by=by, project=decision.project, task=question.task,
        subject=subject_of(decision), reason=note,
    )  # fmt: skip


def _restore(decision: Decision, question: Question, *, by: User) -> None:
    if decision.state != DecisionState.SUPERSEDED or _has_successor(decision):
        return
    decision.state = DecisionState.ACTIVE
    decision.save(update_fields=["state"])
    record_event(decision, DecisionEventKind.RESTORED, by=by, question=question)
    record(
        Action.DECISION_CHANGED, by=by, project=decision.project, task=question.task,
        subject=subject_of(decision),
    )  # fmt: skip


def _has_successor(decision: Decision) -> bool:
    """Return whether a decision that replaced it, or one that replaced that, is in force or proposed."""
    following = list(decision.replaced_by.all())
    return any(one.is_active or one.is_proposed or _has_successor(one) for one in following)

"""Making, confirming, replacing and retiring decisions. A change never edits what a decision says (D1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from tasks_app.core.errors import BadInput, DecisionChanged
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Citation,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionState,
    Project,
    Question,
    Task,
    User,
)
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.decisions.citing import citations_now, existing_files
from tasks_app.services.decisions.content import DecisionContent
from tasks_app.services.questions.question_outcomes import normalise_notes


def make_decision(project: Project, content: DecisionContent, *, by: Principal) -> Decision:
    """Make a decision that no question asked for. Raises NotAllowed or BadInput."""
    require_actor(by, project)
    content = content.checked()
    cites = existing_files(project, content)
    with transaction.atomic():
        return store(project, content, by=by.user, cites=cites)


def propose(
    project: Project, content: DecisionContent, *, by: Principal, source: str, cites: Sequence[Citation] = ()
) -> Decision:
    """Store a decision that holds once somebody accepts it. Raises NotAllowed or BadInput."""
    require_actor(by, project)
    content = content.checked()
    with transaction.atomic():
        decision = _insert(project, content, state=DecisionState.PROPOSED, source=source, cites=list(cites))
        record_event(decision, DecisionEventKind.PROPOSED, by=by.user, note=source)
        record(Action.DECISION_PROPOSED, by=by.user, project=project, subject=subject_of(decision))
    return decision


def confirm(decision: Decision, *, by: Principal) -> Decision:
    """Confirm the decision: a proposed one becomes active, and a review is settled. Twice changes nothing.

    Raises NotAllowed, or DecisionChanged for one that was replaced or retired.
    """
    require_actor(by, decision.project)
    cites = citations_now(decision) if decision.why_review else None
    with transaction.atomic():
        decision = lock_decision(decision)
        if decision.is_proposed:
            decision.state, decision.decided_by = DecisionState.ACTIVE, by.user
            decision.decided_at = timezone.now()
            decision.save(update_fields=["state", "decided_by", "decided_at"])
            record_event(decision, DecisionEventKind.DECIDED, by=by.user)
        else:
            require_active(decision)
            is_new = confirm_by(decision, by.user)
            if cites is not None:
                settle_review(decision, cites, by=by.user)
            if not is_new:
                return decision
        record(Action.DECISION_CONFIRMED, by=by.user, project=decision.project, subject=subject_of(decision))
    return decision


def confirm_by(decision: Decision, user: User, *, question: Question | None = None) -> bool:
    """Note that the user confirmed an active decision, once each. Return whether it is new."""
    events = decision.events.filter(user=user, kind__in=["decided", "confirmed"])
    if question is None and events.exists():
        return False
    task = question.task if question else None
    record_event(decision, DecisionEventKind.CONFIRMED, by=user, task=task, question=question)
    return True


def revise(decision: Decision, content: DecisionContent, *, by: Principal) -> Decision:
    """Replace the decision by a new one and return that. With another statement it has no answer any more.

    Raises NotAllowed, BadInput or DecisionChanged.
    """
    require_actor(by, decision.project)
    content = content.checked()
    # The cited files, and the files that the paths name, as they are now.
    cited = [*citations_now(decision), *existing_files(decision.project, content)]
    cites = list({one["path"]: one for one in cited}.values())
    with transaction.atomic():
        decision = lock_decision(decision)
        if not (decision.is_active or decision.is_proposed):
            raise _not_current(decision)
        if content == DecisionContent.from_decision(decision):
            raise BadInput("nothing is different", where="statement")
        # A new statement may say something else than the answer, which must not be given in its name.
        answers = decision.answers if content.statement == decision.statement else {}
        return replace_by(
            decision, content, by=by.user, cites=cites,
            question=decision.question, question_key=decision.question_key, answers=answers,
        )  # fmt: skip


def replace_by(
    decision: Decision,
    content: DecisionContent,
    *,
    by: User,
    kind: DecisionEventKind = DecisionEventKind.SUPERSEDED,
    answered: Question | None = None,
    **values: Any,
) -> Decision:
    """Store the decision that replaces a locked one. Call it in a transaction.

    `answered` is the question whose answer replaces it.
    """
    new = store(decision.project, content, by=by, replaces=decision, answered=answered, **values)
    supersede(decision, new, by=by, kind=kind, answered=answered)
    return new


def supersede(
    decision: Decision, new: Decision, *, by: User, kind: DecisionEventKind, answered: Question | None = None
) -> None:
    """End a locked decision because of a new one. Call it in a transaction."""
    close(decision, DecisionState.SUPERSEDED)
    task = answered.task if answered else None
    record_event(decision, kind, by=by, task=task, question=answered, note=f"{new.label} replaces it.")
    record(
        Action.DECISION_SUPERSEDED, by=by, project=decision.project, task=task, subject=subject_of(decision),
        decision=decision.number, replaced_by=new.number,
    )  # fmt: skip


def close(decision: Decision, state: DecisionState) -> None:
    """Store that a locked decision does not hold any more.

    Why it was to be reviewed stays, for the case that it is restored.
    """
    decision.state = state
    decision.save(update_fields=["state"])


def retire(decision: Decision, *, by: Principal, reason: str = "") -> Decision:
    """End the decision. Raises NotAllowed, or DecisionChanged if it was replaced or retired already."""
    require_actor(by, decision.project)
    reason = normalise_notes(reason)
    with transaction.atomic():
        decision = lock_decision(decision)
        if not (decision.is_active or decision.is_proposed):
            raise _not_current(decision)
        close(decision, DecisionState.RETIRED)
        record_event(decision, DecisionEventKind.RETIRED, by=by.user, note=reason)
        record(
            Action.DECISION_RETIRED, by=by.user, project=decision.project, subject=subject_of(decision),
            reason=reason,
        )  # fmt: skip
    return decision


def restore(decision: Decision, *, by: Principal) -> Decision:
    """Undo that the decision was retired. Raises NotAllowed, or DecisionChanged if it is not retired."""
    require_actor(by, decision.project)
    with transaction.atomic():
        decision = lock_decision(decision)
        if decision.state != DecisionState.RETIRED:
            raise DecisionChanged(f"{decision.label} is not retired, but {decision.get_state_display()}.")
        decision.state = DecisionState.ACTIVE if decision.decided_by_id else DecisionState.PROPOSED
        decision.save(update_fields=["state"])
        record_event(decision, DecisionEventKind.RESTORED, by=by.user)
        record(Action.DECISION_CHANGED, by=by.user, project=decision.project, subject=subject_of(decision))
    return decision


def mark_reviewed(decision: Decision, *, by: Principal, note: str = "") -> Decision:
    """Keep a decision after a review: cite its code as it is now, and remove the date of the review.

    Raises NotAllowed, or DecisionChanged if it is not active.
    """
    require_actor(by, decision.project)
    note = normalise_notes(note)
    cites = citations_now(decision)
    with transaction.atomic():
        decision = lock_decision(decision)
        require_active(decision)
        settle_review(decision, cites, by=by.user, note=note)
    return decision


_OF_REVIEW = ("review_reason", "review_note", "cites", "review_after")


def settle_review(
    decision: Decision, cites: list[Citation], *, by: User, note: str = "", question: Question | None = None
) -> None:
    """Store that a locked decision was found right, with the files that it cites as they are now.

    `question` is the one whose answer says so.
    """
    key, task = "", None
    if question:  # so that the review can be opened again if the answer is taken back
        due = decision.review_after if decision.is_due else ""
        key, note, task = f"{question.pk} {decision.review_reason} {due}", decision.review_note, question.task
    decision.review_reason, decision.review_note, decision.cites = "", "", cites
    if decision.is_due:
        decision.review_after = None
    decision.save(update_fields=_OF_REVIEW)
    record_event(decision, DecisionEventKind.KEPT, by=by, task=task, question=question, note=note, key=key)
    record(
        Action.DECISION_KEPT, by=by, project=decision.project, task=task, subject=subject_of(decision)
    )  # fmt: skip


def reopen_review(decision: Decision, kept: DecisionEvent) -> None:
    """Let a locked decision be reviewed again, because the answer that kept it is taken back."""
    _, decision.review_reason, due = kept.key.split(" ")
    decision.review_note = kept.note
    if due:
        decision.review_after = date.fromisoformat(due)
    decision.save(update_fields=_OF_REVIEW)


def store(
    project: Project, content: DecisionContent, *, by: User, answered: Question | None = None, **values: Any
) -> Decision:
    """Store an active decision with checked content. Call it in a transaction.

    `answered` is the question in whose answer it is made. The decision may be about an earlier `question`.
    """
    decision = _insert(project, content, decided_by=by, decided_at=timezone.now(), **values)
    task = answered.task if answered else None
    record_event(decision, DecisionEventKind.DECIDED, by=by, task=task, question=answered)
    record(
        Action.DECISION_MADE, by=by, project=project, task=task, subject=subject_of(decision),
        decision=decision.number,
    )  # fmt: skip
    return decision


def _insert(project: Project, content: DecisionContent, **values: Any) -> Decision:
    # The lock keeps numbers unique: each waits for the one before.
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    last = project.decisions.aggregate(last=Max("number"))["last"] or 0
    return Decision.objects.create(
        project=project,
        number=last + 1,
        statement=content.statement,
        reason=content.reason,
        scope=content.scope,
        paths=list(content.paths),
        step=content.step,
        review_after=content.review_after,
        **values,
    )


def record_event(
    decision: Decision,
    kind: DecisionEventKind,
    *,
    by: User | None = None,
    task: Task | None = None,
    question: Question | None = None,
    note: str = "",
    key: str = "",
) -> DecisionEvent:
    """Append to the decision's history."""
    return DecisionEvent.objects.create(
        decision=decision, kind=kind, user=by, task=task, question=question, note=note, key=key
    )


def lock_decision(decision: Decision) -> Decision:
    """Return the decision as it is now, locked until the transaction ends."""
    rows = Decision.objects.select_for_update(of=("self",)).select_related("project", "question__task")
    return rows.get(pk=decision.pk)


def require_active(decision: Decision) -> None:
    if not decision.is_active:
        raise _not_current(decision)


def _not_current(decision: Decision) -> DecisionChanged:
    said = f"{decision.label} is {decision.get_state_display()}."
    if new := decision.replaced_by.first():
        said += f" {new.label} replaces it."
    return DecisionChanged(said)


def subject_of(decision: Decision) -> str:
    """Return how the audit log names the decision."""
    return f"{decision.label}: {decision.statement}"

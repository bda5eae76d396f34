"""JSON models of decisions."""

from __future__ import annotations

from datetime import date
from typing import Any, Self

from django.db.models import prefetch_related_objects
from pydantic import Field

from tasks_app.models import Decision, DecisionEvent, DecisionEventKind, DecisionScope, DecisionState
from tasks_app.reporting.commands import decision_url
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none


class CitationOut(Out):
    """A file that a decision refers to."""

    path: str = Field(description="Its path.")
    blob: str = Field(description="The id of its content when the decision was made.")


class DecisionOut(Out):
    """A decision of a project."""

    number: int = Field(description="Its number in the project.")
    label: str = Field(description="How people and agents cite it, such as D-17.")
    project: str = Field(description="The name of its project.")
    state: DecisionState = Field(description="Only active ones hold. Proposed ones wait for somebody.")
    statement: str = Field(description="What is decided.")
    reason: str = Field(description="Why.")
    scope: DecisionScope = Field(description="Where it holds.")
    paths: list[str] = Field(description="Globs, for the scope `paths`.")
    step: str = Field(description="The step's name, for the scope `step`.")
    decided_by: UserOut | None = Field(description="Who decided; null while it is proposed.")
    decided_at: DateTime | None = Field(description="When.")
    question: int | None = Field(description="The id of the question whose answer it was made from.")
    task: int | None = Field(description="The id of the task that asked.")
    source: str = Field(description="The file from which it was imported; else empty.")
    cites: list[CitationOut] = Field(description="Files that it refers to.")
    review_after: date | None = Field(description="The day after which somebody should look again.")
    review: str = Field(description="Why somebody should look at it now; empty if nobody needs to.")
    replaces: int | None = Field(description="The number of the decision that it replaced.")
    exception_to: int | None = Field(description="The number of the decision to which it is an exception.")
    uses: int = Field(description="How often it was followed, applied or confirmed.")
    overrides: int = Field(description="How often somebody decided otherwise or found that it does not fit.")
    url: str = Field(description="Its page.")

    @classmethod
    def of(cls, decision: Decision, **more: Any) -> Self:
        """Make it of a row of `with_counts()`."""
        return cls(
            number=decision.number,
            label=decision.label,
            project=decision.project.name,
            state=DecisionState(decision.state),
            statement=decision.statement,
            reason=decision.reason,
            scope=DecisionScope(decision.scope),
            paths=decision.paths,
            step=decision.step,
            decided_by=user_or_none(decision.decided_by),
            decided_at=decision.decided_at,
            question=decision.question_id,
            task=decision.question.task_id if decision.question else None,
            source=decision.source,
            cites=[CitationOut(path=one["path"], blob=one["blob"]) for one in decision.cites],
            review_after=decision.review_after,
            review=decision.why_review,
            replaces=decision.replaces.number if decision.replaces else None,
            exception_to=decision.exception_to.number if decision.exception_to else None,
            uses=decision.uses,
            overrides=decision.overrides,
            url=decision_url(decision),
            **more,
        )


class DecisionEventOut(Out):
    """One thing that happened to a decision."""

    kind: DecisionEventKind = Field(description="What happened.")
    at: DateTime = Field(description="When.")
    by: UserOut | None = Field(description="Who did it; null for agents and the portal.")
    task: int | None = Field(description="The id of the task in which it happened.")
    question: int | None = Field(description="The id of the question in whose answer it happened.")
    note: str = Field(description="The reason, in their words.")

    @classmethod
    def of(cls, event: DecisionEvent) -> Self:
        return cls(
            kind=DecisionEventKind(event.kind),
            at=event.at,
            by=user_or_none(event.user),
            task=event.task_id,
            question=event.question_id,
            note=event.note,
        )


class DecisionWithHistory(DecisionOut):
    """A decision with everything that happened to it."""

    history: list[DecisionEventOut] = Field(description="The oldest first.")

    @classmethod
    def of(cls, decision: Decision, **more: Any) -> Self:
        prefetch_related_objects([decision], "events__user")  # a list has prefetched them for all
        history = [DecisionEventOut.of(event) for event in decision.events.all()]
        return super().of(decision, history=history, **more)

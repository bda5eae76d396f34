"""Payloads of events that more than one module stores."""

from __future__ import annotations

from tasks_app.core.types import Json
from tasks_app.models import Question


def question_payload(question: Question) -> dict[str, Json]:
    """Return the payload of the event that shows the question in the log."""
    return {
        "number": question.number,
        "question_id": question.pk,
        "kind": question.kind,
        "question": question.headline,
        "items": question.items,
        "way": question.way,
        "evidence": question.evidence,
    }

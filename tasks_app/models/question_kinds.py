"""The kinds and states of questions, and what a human may say to each kind."""

from __future__ import annotations

from django.db import models


class QuestionKind(models.TextChoices):
    CLARIFICATION = "clarification", "a question"
    APPROVAL = "approval", "approval of a tool call"
    PLAN = "plan", "a plan to review"
    #: Asked by the portal, not by an agent: see `services/usage/cost_limits.py`.
    COST = "cost", "a soft cost limit"


#: What a question of each kind is called in front of its number, and in notifications.
KIND_NAMES: dict[str, str] = {
    QuestionKind.CLARIFICATION: "Question",
    QuestionKind.APPROVAL: "Approval",
    QuestionKind.PLAN: "Plan",
    QuestionKind.COST: "Question",
}


class QuestionState(models.TextChoices):
    OPEN = "open", "open"
    ANSWERED = "answered", "answered"
    DISMISSED = "dismissed", "dismissed"
    #: By a rule of the project, because nobody had answered. `answers` are then what the agent recommended.
    UNANSWERED = "unanswered", "ended without an answer"
    WITHDRAWN = "withdrawn", "withdrawn"


class Verdict(models.TextChoices):
    """What a human says to a tool call or a plan."""

    APPROVED = "approved", "Approved"
    DENIED = "denied", "Denied"
    SENT_BACK = "sent_back", "Sent back"


#: The possible verdicts of each kind; those without any get an answer instead.
VERDICTS: dict[str, tuple[Verdict, ...]] = {
    QuestionKind.CLARIFICATION: (),
    QuestionKind.COST: (),
    QuestionKind.APPROVAL: (Verdict.APPROVED, Verdict.DENIED),
    QuestionKind.PLAN: (Verdict.APPROVED, Verdict.SENT_BACK),
}


#: States in which a question has been dealt with, and its agent goes on.
SETTLED = (QuestionState.ANSWERED, QuestionState.DISMISSED, QuestionState.UNANSWERED)

"""What the agent reads in place of an answer: that it decides, or what a rule took (SPEC Q3)."""

from __future__ import annotations

from datetime import UTC, datetime

from tasks_app.prompting.escaping import escaped_line

#: The request to the agent after a dismissed question.
DECIDE_YOURSELF = "Decide it by your own best judgement, and say in your last message what you assumed."
#: What the agent reads if a rule took what it had recommended.
NOBODY_CHOSE = (
    "No person chose this, and people may still undo it: go on with it, keep what depends on it easy to "
    "change, and say in your last message that it was assumed."
)


def ended_by_rule(rule: str, at: datetime) -> str:
    """Say that a rule of the project ended a question that nobody had answered by then."""
    return (
        f"No answer: nobody had answered this question by {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, and the "
        f"rule “{escaped_line(rule)}” of this project ended it."
    )


def taken_by_rule(answer: str) -> str:
    """Say what holds instead of an answer: what the agent had recommended, or its own judgement."""
    if not answer:
        return f"{DECIDE_YOURSELF} People may still undo it."
    return f"What you had recommended holds: “{escaped_line(answer)}”. {NOBODY_CHOSE}"

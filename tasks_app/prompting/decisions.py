"""The section of a prompt with the decisions of the project (SPEC D3).

It comes late in the prompt, so that a new decision leaves the beginning, which providers cache, as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks_app.core.types import KnownDecision
from tasks_app.prompting.escaping import escape, escaped_line

_INTRODUCTION = """\
People of this project have decided this. Keep to it; the more specific one comes first and counts. What is
decided here you need not ask again. If one does not fit your task, do not work around it in silence: run

    cat-herder unfit D-17 "why it does not fit"

and, if you cannot go on without it, ask and name the decision in your question. In your last message name the
decisions that you followed, such as D-17."""
#: Characters of a token, about; prompts need no exact count.
_CHARACTERS = 4


def decisions_text(decisions: Sequence[KnownDecision], *, more: int = 0) -> str:
    """Return the body of the section. `more` decisions are not listed."""
    listed = "\n".join(entry(one) for one in decisions)
    left = f'\n\n{more} more are not listed here: `cat-herder decisions "words"` finds them.' if more else ""
    return f"{_INTRODUCTION}\n\n{listed}{left}"


def entry(decision: KnownDecision) -> str:
    """Return the lines of one decision: `D-17 (Ada, 3 May 2026, src/**): …` and its reason."""
    facts = ", ".join(filter(None, (decision.decided_by, decision.day, decision.where)))
    statement = _indented(decision.statement)
    reason = f"\n    Reason: {_indented(decision.reason)}" if decision.reason else ""
    return f"* {decision.label} ({escaped_line(facts)}): {statement}{reason}"


def tokens_of(decision: KnownDecision) -> int:
    """Return about how many tokens the decision takes in a prompt."""
    return len(entry(decision)) // _CHARACTERS + 1


def _indented(text: str) -> str:
    return escape(text).replace("\n", "\n    ")

"""How runs that asked ended, in the words of pages and logs."""

from __future__ import annotations

from tasks_app.models import Outcome, QuestionKind, Run

#: What a run that asked did, by the kind of its question.
_ASKED: dict[str, str] = {
    QuestionKind.CLARIFICATION: "the agent asked and stopped",
    QuestionKind.APPROVAL: "the agent needs an approval",
    QuestionKind.PLAN: "the agent showed its plan",
}


def ending_of(run: Run, kind_asked: str) -> str:
    """Return how the run ended; "" if it has not. `kind_asked`: of the agent's question; "" without one."""
    if run.outcome != Outcome.ASKED:
        return str(run.get_outcome_display())
    return _ASKED.get(kind_asked, "its calls were set aside")

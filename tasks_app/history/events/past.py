"""Collect what the agent did in a step so far, for a run that cannot resume the session (H9)."""

from __future__ import annotations

from django.db.models import Q

from tasks_app.history.events.lines import question_text, tool_input
from tasks_app.history.events.reading import Events
from tasks_app.models import Channel, EventKind, Step
from tasks_app.prompting.replay import PastAction

#: Call and result of this tool repeat the events of the question and the answer.
_ASK_TOOL = "AskUserQuestion"

_KINDS = (
    EventKind.TEXT,
    EventKind.THINKING,
    EventKind.TOOL_USE,
    EventKind.TOOL_RESULT,
    EventKind.QUESTION,
    EventKind.ANSWER,
    EventKind.NOTE,
)


def past_actions(step: Step) -> list[PastAction]:
    """Return texts, thoughts, tool calls, results, questions and answers of all runs that count.

    Events with a damaged payload are left out, and answers that were taken back.
    """
    calls: dict[str, str] = {}
    stored = Events(Q(run__step=step)).of_kinds(_KINDS)
    found = [event for run in step.current_runs.order_by("number") for event in stored.of_run(run)]
    events = _without_taken_back([(event.kind, event.payload) for event in found])
    actions = (_to_action(kind, payload, calls) for kind, payload in events)
    return [action for action in actions if action and action.text.strip()]


def _without_taken_back(events: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Leave out notes, and answers with the number of a later note that says they were taken back."""
    kept: list[tuple[str, object]] = []
    taken_back: set[object] = set()
    for kind, payload in reversed(events):
        fields = payload if isinstance(payload, dict) else {}
        if kind == EventKind.NOTE:
            taken_back.add(fields.get("taken_back"))
        elif kind == EventKind.ANSWER and fields.get("number") in taken_back - {None}:
            taken_back.discard(fields["number"])
        else:
            kept.append((kind, payload))
    return kept[::-1]


def _to_action(kind: str, payload: object, calls: dict[str, str]) -> PastAction | None:
    """Return one action, or None. `calls` maps call ids to tools, for the results that follow."""
    if not isinstance(payload, dict):
        return None
    text = str(payload.get("text", ""))
    match EventKind(kind):
        case EventKind.TOOL_USE:
            tool = calls[str(payload.get("id"))] = str(payload.get("name", ""))
            return None if tool == _ASK_TOOL else PastAction("tool", tool_input(payload), tool)
        case EventKind.TOOL_RESULT:
            tool = calls.get(str(payload.get("tool_use_id")), "")
            return None if tool == _ASK_TOOL else PastAction("tool", text, f"result of {tool}".rstrip())
        case EventKind.QUESTION:
            return PastAction("tool", question_text(payload), "question")
        case EventKind.ANSWER:
            return _human_action(payload, text)
    return PastAction("reasoning", text)


def _human_action(payload: dict[str, object], text: str) -> PastAction:
    outcome = str(payload.get("outcome") or "Answered")
    if outcome == "Answered":
        by_decision = payload.get("via") == Channel.DECISION
        return PastAction(
            "tool", text, f"answer of {payload.get('by')}" if by_decision else "answer of a human"
        )
    return PastAction("tool", f"{outcome}. {payload.get('notes') or ''}".strip(), "decision of a human")

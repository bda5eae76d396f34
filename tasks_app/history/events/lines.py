"""Format events as lines of a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tasks_app.core.control_characters import strip_controls
from tasks_app.models import Channel, Event, EventKind, QuestionKind

Payload = dict[str, Any]

#: Characters of a tool call's input in a log; the raw log has all of it.
MAX_INPUT = 2_000


def format_time(at: datetime) -> str:
    """Format a time in UTC for logs."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_event(event: Event) -> str:
    """Return the event with its time and tags.

    Further lines are indented, so that no text can look like a line of the log itself.
    """
    tag, format_payload = _FORMATS[EventKind(event.kind)]
    if event.kind == EventKind.QUESTION and event.payload.get("kind") == QuestionKind.COST:
        tag = "[PORTAL] [QUESTION]"
    if event.kind == EventKind.ANSWER and event.payload.get("via") == Channel.DECISION:
        tag = "[DECISION]"
    text = strip_controls(format_payload(event.payload)).rstrip().replace("\n", "\n    ")
    return f"[{format_time(event.at)}] {tag} {text}\n"


def _format_text(payload: Payload) -> str:
    return str(payload.get("text", ""))


def _format_tool_use(payload: Payload) -> str:
    call = tool_input(payload)
    more = len(call) - MAX_INPUT
    shown = call if more <= 0 else f"{call[:MAX_INPUT]}… {more:,} more characters"
    return f"{payload.get('name', '')}({shown})"


def tool_input(payload: Payload) -> str:
    """Return the input of a tool call as compact JSON."""
    return json.dumps(payload.get("input"), ensure_ascii=False, separators=(",", ":"))


def _format_tool_result(payload: Payload) -> str:
    failed = payload.get("is_error") and not payload.get("turned_down")
    return f"{'error: ' if failed else ''}{_format_text(payload)}"


def question_text(payload: Payload) -> str:
    """Return a question's items with their options. For an approval, add the whole command and the rule."""
    items = payload.get("items") or [{"question": payload.get("question", "")}]
    lines = list(map(_format_item, items))
    for piece in payload.get("evidence") or ():
        if piece.get("kind") == "rule":
            lines.append(f"Rule: {piece['text']}")
        elif piece.get("kind") == "command" and f"`{piece['text']}`" not in lines[0]:
            lines.append(f"Command: {piece['text']}")
    return "\n".join(lines)


def _format_question(payload: Payload) -> str:
    """Return the question, with the plan that is to be approved."""
    texts = (
        f"{one.get('title', '')}:\n{one['text']}"
        for one in payload.get("evidence") or ()
        if one.get("kind") == "markdown"
    )
    return "\n".join([question_text(payload), *texts])


def _format_item(item: Payload) -> str:
    options = (f"\n- {_format_option(option)}" for option in item.get("options") or ())
    return f"{item.get('question', '')}{''.join(options)}"


def _format_option(option: Payload) -> str:
    label, description = option.get("label", ""), option.get("description")
    return f"{label}: {description}" if description else str(label)


def _format_answer(payload: Payload) -> str:
    """Format an answer; verdicts and dismissals are named, so that they do not look like answers."""
    outcome = payload.get("outcome") or "Answered"
    if payload.get("via") == Channel.DECISION:
        return f'Answered by {payload.get("by", "")}: "{_format_text(payload)}"'
    if outcome == "Answered":
        return f'User answered: "{_format_text(payload)}"'
    notes = payload.get("notes")
    return f"{outcome} by {payload.get('by', '')}" + (f': "{notes}"' if notes else "")


def _format_check(payload: Payload) -> str:
    verdict = "passed" if payload.get("passed") else "failed"
    text = payload.get("problem") or f"{payload.get('check', '')} {verdict}"
    output = payload.get("output")
    return f"{text}" + (f"\n{output}" if output else "")


def _format_result(payload: Payload) -> str:
    error = f": {_format_text(payload)}" if payload.get("is_error") else ""
    return f"{payload.get('subtype', '')}{error}"


_FORMATS: dict[EventKind, tuple[str, Callable[[Payload], str]]] = {
    EventKind.TEXT: ("[ASSISTANT] [TEXT]", _format_text),
    EventKind.THINKING: ("[ASSISTANT] [THINKING]", _format_text),
    EventKind.TOOL_USE: ("[ASSISTANT] [TOOL_USE]", _format_tool_use),
    EventKind.TOOL_RESULT: ("[TOOL_RESULT]", _format_tool_result),
    EventKind.QUESTION: ("[ASSISTANT] [QUESTION]", _format_question),
    EventKind.ANSWER: ("[USER_INPUT]", _format_answer),
    EventKind.CHECK: ("[CHECK]", _format_check),
    EventKind.NOTE: ("[NOTE]", _format_text),
    EventKind.ERROR: ("[ERROR]", _format_text),
    EventKind.RESULT: ("[RESULT]", _format_result),
    EventKind.SYSTEM: ("[SYSTEM]", lambda payload: str(payload.get("subtype", ""))),
    EventKind.UNKNOWN: ("[UNKNOWN]", lambda payload: str(payload.get("type", ""))),
}

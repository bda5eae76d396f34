"""One event as the line that people read in a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tasks_app.core.control_characters import strip_controls
from tasks_app.models import Event, EventKind

Payload = dict[str, Any]

#: Characters of a tool call's input that a log shows; the raw log has all of it.
INPUT_SHOWN = 2_000


def stamp(at: datetime) -> str:
    """The time in UTC as logs show it."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def line(event: Event) -> str:
    """The event behind its time and tags.

    Further lines of its text are indented, so that no text can pass for a line of the log itself.
    """
    tag, words = _WORDS[EventKind(event.kind)]
    text = strip_controls(words(event.payload)).rstrip().replace("\n", "\n    ")
    return f"[{stamp(event.at)}] {tag} {text}\n"


def _text(payload: Payload) -> str:
    return str(payload.get("text", ""))


def _tool_use(payload: Payload) -> str:
    return f"{payload.get('name', '')}({_bounded(tool_input(payload))})"


def tool_input(payload: Payload) -> str:
    """The input of a tool call as compact JSON."""
    return json.dumps(payload.get("input"), ensure_ascii=False, separators=(",", ":"))


def _bounded(text: str) -> str:
    more = len(text) - INPUT_SHOWN
    return text if more <= 0 else f"{text[:INPUT_SHOWN]}… {more:,} more characters"


def _tool_result(payload: Payload) -> str:
    failed = payload.get("is_error") and not payload.get("turned_down")
    return f"{'error: ' if failed else ''}{_text(payload)}"


def question_text(payload: Payload) -> str:
    """All items of a question, each with the options that it offered."""
    items = payload.get("items") or [{"question": payload.get("question", "")}]
    return "\n".join(map(_item, items))


def _item(item: Payload) -> str:
    options = (f"\n- {_option(option)}" for option in item.get("options") or ())
    return f"{item.get('question', '')}{''.join(options)}"


def _option(option: Payload) -> str:
    label, description = option.get("label", ""), option.get("description")
    return f"{label}: {description}" if description else str(label)


def _answer(payload: Payload) -> str:
    """A verdict or a dismissal says so, and never looks like an answer."""
    outcome = payload.get("outcome") or "Answered"
    if outcome == "Answered":
        return f'User answered: "{_text(payload)}"'
    notes = payload.get("notes")
    return f"{outcome} by {payload.get('by', '')}" + (f': "{notes}"' if notes else "")


def _check(payload: Payload) -> str:
    verdict = "passed" if payload.get("passed") else "failed"
    said = payload.get("problem") or f"{payload.get('check', '')} {verdict}"
    output = payload.get("output")
    return f"{said}" + (f"\n{output}" if output else "")


def _result(payload: Payload) -> str:
    error = f": {_text(payload)}" if payload.get("is_error") else ""
    return f"{payload.get('subtype', '')}{error}"


_WORDS: dict[EventKind, tuple[str, Callable[[Payload], str]]] = {
    EventKind.TEXT: ("[ASSISTANT] [TEXT]", _text),
    EventKind.THINKING: ("[ASSISTANT] [THINKING]", _text),
    EventKind.TOOL_USE: ("[ASSISTANT] [TOOL_USE]", _tool_use),
    EventKind.TOOL_RESULT: ("[TOOL_RESULT]", _tool_result),
    EventKind.QUESTION: ("[ASSISTANT] [QUESTION]", question_text),
    EventKind.ANSWER: ("[USER_INPUT]", _answer),
    EventKind.CHECK: ("[CHECK]", _check),
    EventKind.NOTE: ("[NOTE]", _text),
    EventKind.ERROR: ("[ERROR]", _text),
    EventKind.RESULT: ("[RESULT]", _result),
    EventKind.SYSTEM: ("[SYSTEM]", lambda payload: str(payload.get("subtype", ""))),
    EventKind.UNKNOWN: ("[UNKNOWN]", lambda payload: str(payload.get("type", ""))),
}

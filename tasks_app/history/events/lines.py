"""Format events, and the tools that they name, as lines of a log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from tasks_app.core.text import strip_controls
from tasks_app.models import Channel, Event, EventKind, QuestionKind, through

Payload = dict[str, Any]

#: Characters of a tool call's input in a log; the raw log has all of it.
MAX_INPUT = 2_000


def format_time(at: datetime) -> str:
    """Format a time in UTC for logs."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


#: The tags of answers that no person gave, by their channel.
_NOT_OF_PEOPLE: dict[object, str] = {Channel.DECISION: "[DECISION]", Channel.RULE: "[NO ANSWER]"}


def format_event(event: Event, outcomes: Mapping[str, str] | None = None) -> str:
    """Return the event with its time and tags. `outcomes` says by its id what became of a call.

    Further lines are indented, so that no text can look like a line of the log itself.
    """
    tag, format_payload = _FORMATS[EventKind(event.kind)]
    if event.kind == EventKind.QUESTION and event.payload.get("kind") == QuestionKind.COST:
        tag = "[PORTAL] [QUESTION]"
    if event.kind == EventKind.ANSWER:
        tag = _NOT_OF_PEOPLE.get(event.payload.get("via"), tag)
    text = format_payload(event.payload)
    if event.kind == EventKind.TOOL_USE and (outcome := (outcomes or {}).get(str(event.payload.get("id")))):
        text += f" → {outcome}"
    text = strip_controls(text).rstrip().replace("\n", "\n    ")
    return f"[{format_time(event.at)}] {tag} {text}\n"


def _format_text(payload: Payload) -> str:
    return str(payload.get("text", ""))


def _format_tool_use(payload: Payload) -> str:
    call = tool_input(payload)
    more = len(call) - MAX_INPUT
    if more > 0:
        call = f"{call[:MAX_INPUT]}… {more:,} more characters"
    return f"{payload.get('name', '')}({call})"


def tool_input(payload: Payload) -> str:
    """Return the input of a tool call as compact JSON."""
    return json.dumps(payload.get("input"), ensure_ascii=False, separators=(",", ":"))


def _format_tool_result(payload: Payload) -> str:
    if payload.get("is_error") and not payload.get("turned_down"):
        return f"error: {_format_text(payload)}"
    return _format_text(payload)


def question_text(payload: Payload) -> str:
    """Return a question's items with their options. For an approval, add the whole command and the rule."""
    lines = []
    for item in payload.get("items") or [{"question": payload.get("question", "")}]:
        text = str(item.get("question", ""))
        for option in item.get("options") or ():
            text += f"\n- {option.get('label', '')}"
            if description := option.get("description"):
                text += f": {description}"
        lines.append(text)
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


def _format_answer(payload: Payload) -> str:
    """Format an answer; verdicts and dismissals are named, so that they do not look like answers."""
    outcome = payload.get("outcome") or "Answered"
    if payload.get("via") == Channel.DECISION:
        return f'Answered by {payload.get("by", "")}: "{_format_text(payload)}"'
    if payload.get("via") == Channel.RULE:
        said = f"{outcome} by {payload.get('by', '')}"
        if text := _format_text(payload):
            said += f', which took "{text}"'
        return said
    where = f" {through(payload['via'], program)}" if (program := payload.get("program")) else ""
    if outcome == "Answered":
        return f'User answered{where}: "{_format_text(payload)}"'
    said = f"{outcome} by {payload.get('by', '')}{where}"
    if notes := payload.get("notes"):
        said += f': "{notes}"'
    return said


def _format_check(payload: Payload) -> str:
    verdict = "passed" if payload.get("passed") else "failed"
    text = payload.get("problem") or f"{payload.get('check', '')} {verdict}"
    return "\n".join(map(str, filter(None, [text, payload.get("output")])))


def _format_result(payload: Payload) -> str:
    subtype = str(payload.get("subtype", ""))
    if payload.get("is_error"):
        return f"{subtype}: {_format_text(payload)}"
    return subtype


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


# Summarise tool calls in one readable line.


_WORKSPACE = re.compile(r"^.*/(?:tasks|sequences)/\d+(?:-[0-9a-f]+)?/workspace(?:/|$)")
_PLAN = re.compile(r"/home/\.claude/plans/[^/]+\.md$")
_LENGTH = 160
_PATH_KEYS = ("file_path", "notebook_path", "path")


def summarise(name: str, given: Mapping[str, Any]) -> str:
    """Return one line for a tool call: `$ make test`, `Edit prices.py`, `Grep “round” in src`."""
    if name == "Bash":
        return shorten(f"$ {given.get('command', '')}")
    if name in ("Grep", "Glob"):
        call = f"{name} “{given.get('pattern', '')}”"
        if folder := short_path(given.get("path") or ""):
            call += f" in {folder}"
        return shorten(call)
    if name == "TodoWrite":
        return _todo_line(given.get("todos"))
    if name == "ExitPlanMode":
        return "Shows its plan"
    if name == "AskUserQuestion":
        match given.get("questions"):
            case [{"question": question}, *_]:
                return shorten(f"Question “{question}”")
        return "Question"
    if path := next((given[key] for key in _PATH_KEYS if given.get(key)), None):
        return shorten(f"{name} {short_path(path)}")
    preferred = (given.get(key) for key in ("description", "query", "url", "prompt"))
    texts = (value for value in (*preferred, *given.values()) if isinstance(value, str) and value.strip())
    return shorten(f"{name} {next(texts, '')}".strip())


def short_path(path: Any) -> str:
    """Return the path relative to the workspace, if it is in one; the file of a plan is “its plan”."""
    if _PLAN.search(str(path)):
        return "its plan"
    return _WORKSPACE.sub("", str(path))


def _todo_line(todos: Any) -> str:
    if not isinstance(todos, list):
        todos = []
    items = [item for item in todos if isinstance(item, dict)]
    done = sum(item.get("status") == "completed" for item in items)
    line = f"To do: {done} of {len(items)} done"
    if current := next((one.get("content") for one in items if one.get("status") == "in_progress"), ""):
        line += f", now: {current}"
    return shorten(line)


def shorten(text: str) -> str:
    """Return the first line, shortened, with “…” if something was left out."""
    text = strip_controls(text).strip()
    first = text.split("\n", 1)[0]
    cut = first
    if len(first) > _LENGTH:
        at = first.rfind(" ", _LENGTH // 2, _LENGTH + 1)  # not inside a word, unless it is a very long one
        cut = first[: at if at > 0 else _LENGTH].rstrip()
    if cut != text:
        cut += " …"
    return cut

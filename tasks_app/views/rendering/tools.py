"""Tool calls in one readable line, and the part of their input worth looking at."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks_app.views.rendering.ansi import without_ansi
from tasks_app.views.rendering.diff import DiffLine

_WORKSPACE = re.compile(r"^.*/tasks/\d+/workspace/")
_LENGTH = 160
_PATH_KEYS = ("file_path", "notebook_path", "path")


def summarise(name: str, given: dict[str, Any]) -> str:
    """One line for a tool call: `$ make test`, `Edit prices.py`, `Grep "round" in src`."""
    if name == "Bash":
        return _line(f"$ {given.get('command', '')}")
    if name in ("Grep", "Glob"):
        place = short_path(given.get("path") or "")
        return _line(f"{name} “{given.get('pattern', '')}”" + (f" in {place}" if place else ""))
    if name == "TodoWrite":
        return _todo(given.get("todos"))
    if name == "AskUserQuestion":
        return _line(f"{name} {_asked(given.get('questions'))}".strip())
    if path := next((given[key] for key in _PATH_KEYS if given.get(key)), None):
        return _line(f"{name} {short_path(path)}")
    return _line(f"{name} {_first_text(given)}".strip())


def short_path(path: Any) -> str:
    """The path as seen from the workspace, if it lies in one."""
    return _WORKSPACE.sub("", str(path))


def edit_lines(name: str, given: dict[str, Any]) -> list[DiffLine]:
    """An edit or a write as the lines of a diff; empty for other tools."""
    if name == "Write":
        return _lines("add", given.get("content"))
    if name == "MultiEdit":
        edits = given.get("edits")
        return [line for edit in edits if isinstance(edit, dict) for line in _edit(edit)] if edits else []
    return _edit(given) if name == "Edit" else []


def shown_input(name: str, given: dict[str, Any]) -> str:
    """The input as text for the opened fold: a command as it is, few words as lines, the rest as JSON."""
    if name == "Bash":
        return str(given.get("command", ""))
    if all(isinstance(value, str | int | float) for value in given.values()):
        return "\n".join(f"{key}: {value}" for key, value in given.items())
    return json.dumps(given, indent=2, ensure_ascii=False)


def _edit(given: dict[str, Any]) -> list[DiffLine]:
    return [*_lines("del", given.get("old_string")), *_lines("add", given.get("new_string"))]


def _lines(kind: Any, text: Any) -> list[DiffLine]:
    return [DiffLine(kind, line) for line in str(text or "").splitlines()]


def _todo(todos: Any) -> str:
    items = [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
    done = sum(item.get("status") == "completed" for item in items)
    current = next((item.get("content", "") for item in items if item.get("status") == "in_progress"), "")
    return _line(f"To do: {done} of {len(items)} done" + (f", now: {current}" if current else ""))


def _asked(questions: Any) -> str:
    first = questions[0] if isinstance(questions, list) and questions else {}
    return f"“{first.get('question', '')}”" if isinstance(first, dict) and first else ""


def _first_text(given: dict[str, Any]) -> str:
    preferred = (given.get(key) for key in ("description", "query", "url", "prompt"))
    texts = (value for value in (*preferred, *given.values()) if isinstance(value, str) and value.strip())
    return next(texts, "")


def _line(text: str) -> str:
    """The first line, shortened, with a mark if something was left out."""
    text = without_ansi(text).strip()
    first = text.split("\n", 1)[0]
    cut = first if len(first) <= _LENGTH else first[:_LENGTH].rstrip()
    return cut if cut == text else f"{cut} …"

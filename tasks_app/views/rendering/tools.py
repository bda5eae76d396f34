"""The part of a tool call's input that is worth looking at."""

from __future__ import annotations

import json
from typing import Any

from tasks_app.views.rendering.diff import DiffLine


def edit_lines(name: str, given: dict[str, Any]) -> list[DiffLine]:
    """An edit or a write as the lines of a diff; empty for other tools."""
    if name == "Write":
        return _lines("add", given.get("content"))
    if name == "MultiEdit":
        edits = given.get("edits")
        edits = edits if isinstance(edits, list) else []
        return [line for edit in edits if isinstance(edit, dict) for line in _edit(edit)]
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

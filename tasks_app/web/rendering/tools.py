"""The input of a tool call, as shown on a page."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import Any

from tasks_app.web.rendering.diff import DiffLine, LineKind

#: Lines up to which an edit is compared line by line: the time grows with the square.
_COMPARED = 400


def edit_lines(name: str, given: dict[str, Any]) -> list[DiffLine]:
    """Return an edit or a write as diff lines; empty for other tools."""
    if name == "Write":
        return _lines("add", _text_lines(given.get("content")))
    if name == "MultiEdit":
        edits = given.get("edits")
        if not isinstance(edits, list):
            return []
        return [line for edit in edits if isinstance(edit, dict) for line in _edit(edit)]
    if name == "Edit":
        return _edit(given)
    return []


def shown_input(name: str, given: dict[str, Any]) -> str:
    """Return the input as text: a command as it is, short values as lines, the rest as JSON."""
    if name == "Bash":
        return str(given.get("command", ""))
    if name == "ExitPlanMode":  # the path in it is that of a file that only the agent sees
        return str(given.get("plan", ""))
    if name == "TodoWrite" and (steps := _steps(given.get("todos"))):
        return steps
    if all(isinstance(value, str | int | float) for value in given.values()):
        return "\n".join(f"{key}: {value}" for key, value in given.items())
    return json.dumps(given, indent=2, ensure_ascii=False)


def _steps(todos: Any) -> str:
    """Return the items of a to-do list as lines; empty for other input."""
    if not isinstance(todos, list) or not all(isinstance(one, dict) and "content" in one for one in todos):
        return ""
    marks = {"completed": "✓", "in_progress": "→"}
    return "\n".join(f"{marks.get(str(one.get('status')), '·')} {one['content']}" for one in todos)


def _edit(given: dict[str, Any]) -> list[DiffLine]:
    """Return removed and added lines, with unchanged ones between."""
    old, new = _text_lines(given.get("old_string")), _text_lines(given.get("new_string"))
    if len(old) + len(new) > _COMPARED:
        return [*_lines("del", old), *_lines("add", new)]
    found: list[DiffLine] = []
    for what, begin, end, new_begin, new_end in SequenceMatcher(None, old, new, False).get_opcodes():
        if what == "equal":
            found += _lines("same", old[begin:end])
        else:
            found += [*_lines("del", old[begin:end]), *_lines("add", new[new_begin:new_end])]
    return found


def _text_lines(text: Any) -> list[str]:
    return str(text or "").splitlines()


def _lines(kind: LineKind, lines: list[str]) -> list[DiffLine]:
    return [DiffLine(kind, line) for line in lines]

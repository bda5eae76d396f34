"""Summarise tool calls in one readable line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tasks_app.core.control_characters import strip_controls

_WORKSPACE = re.compile(r"^.*/(?:tasks|sequences)/\d+(?:-[0-9a-f]+)?/workspace(?:/|$)")
_PLAN = re.compile(r"/home/\.claude/plans/[^/]+\.md$")
_LENGTH = 160
_PATH_KEYS = ("file_path", "notebook_path", "path")


def summarise(name: str, given: Mapping[str, Any]) -> str:
    """Return one line for a tool call: `$ make test`, `Edit prices.py`, `Grep “round” in src`."""
    if name == "Bash":
        return _shorten(f"$ {given.get('command', '')}")
    if name in ("Grep", "Glob"):
        folder = short_path(given.get("path") or "")
        return _shorten(f"{name} “{given.get('pattern', '')}”" + (f" in {folder}" if folder else ""))
    if name == "TodoWrite":
        return _todo_line(given.get("todos"))
    if name == "ExitPlanMode":
        return "Shows its plan"
    if name == "AskUserQuestion":
        return _shorten(f"Question {_first_question(given.get('questions'))}".strip())
    if path := next((given[key] for key in _PATH_KEYS if given.get(key)), None):
        return _shorten(f"{name} {short_path(path)}")
    return _shorten(f"{name} {_first_text(given)}".strip())


def short_path(path: Any) -> str:
    """Return the path relative to the workspace, if it is in one; the file of a plan is “its plan”."""
    return "its plan" if _PLAN.search(str(path)) else _WORKSPACE.sub("", str(path))


def _todo_line(todos: Any) -> str:
    items = [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
    done = sum(item.get("status") == "completed" for item in items)
    current = next((item.get("content", "") for item in items if item.get("status") == "in_progress"), "")
    return _shorten(f"To do: {done} of {len(items)} done" + (f", now: {current}" if current else ""))


def _first_question(questions: Any) -> str:
    first = questions[0] if isinstance(questions, list) and questions else {}
    return f"“{first.get('question', '')}”" if isinstance(first, dict) and first else ""


def _first_text(given: Mapping[str, Any]) -> str:
    preferred = (given.get(key) for key in ("description", "query", "url", "prompt"))
    texts = (value for value in (*preferred, *given.values()) if isinstance(value, str) and value.strip())
    return next(texts, "")


def _shorten(text: str) -> str:
    """Return the first line, shortened, with “…” if something was left out."""
    text = strip_controls(text).strip()
    first = text.split("\n", 1)[0]
    cut = first
    if len(first) > _LENGTH:
        at = first.rfind(" ", _LENGTH // 2, _LENGTH + 1)  # not inside a word, unless it is a very long one
        cut = first[: at if at > 0 else _LENGTH].rstrip()
    return cut if cut == text else f"{cut} …"

"""Recognising questions in the agent's tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tasks_app.agent.gate.hook import asks_about_goal, questions_in
from tasks_app.core.types import Ask, AskItem, Option

#: The header by which the agent says that a question is about the goal of the task, not about the way to it.
GOAL = "goal"


def ask_from_call(tool_use_id: str, name: str, tool_input: Mapping[str, Any]) -> Ask | None:
    """Return the ask that a tool call makes, or None for an ordinary tool call."""
    if name == "AskUserQuestion":
        items = _question_items(tool_input)
        about_goal = any(item.header.strip().lower() == GOAL for item in items)
        return Ask(tool_use_id, "AskUserQuestion", items, dict(tool_input), about_goal=about_goal)
    if name == "Bash":
        command = str(tool_input.get("command", ""))
        if questions := questions_in(command):
            items = tuple(AskItem(question) for question in dict.fromkeys(questions))
            about_goal = asks_about_goal(command)
            return Ask(tool_use_id, "command", items, dict(tool_input), about_goal=about_goal)
    return None


def _question_items(tool_input: Mapping[str, Any]) -> tuple[AskItem, ...]:
    """Return the items of an AskUserQuestion call, at least one whatever the model wrote."""
    written = tool_input.get("questions")
    questions = [item for item in written if isinstance(item, dict)] if isinstance(written, list) else []
    items = [_question_item(item) for item in questions]
    return tuple(items) or (AskItem(json.dumps(tool_input, ensure_ascii=False)[:2000]),)


def _question_item(written: Mapping[str, Any]) -> AskItem:
    options = written.get("options")
    return AskItem(
        question=str(written.get("question") or written.get("header") or "(no question was given)"),
        header=str(written.get("header") or ""),
        options=tuple(_question_option(option) for option in options) if isinstance(options, list) else (),
        multi_select=written.get("multiSelect") is True,
    )


def _question_option(written: Any) -> Option:
    if not isinstance(written, dict):
        return Option(str(written))
    return Option(*(str(written.get(name) or "") for name in ("label", "description", "preview")))

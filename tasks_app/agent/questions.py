"""Recognising questions in the agent's tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks_app.agent.gate.hook import asks_about_goal, is_askable, questions_in
from tasks_app.core.types import Ask, AskItem, Option

#: The header by which the agent says that a question is about the goal of the task, not about the way to it.
GOAL = "goal"


def ask_from_call(tool_use_id: str, name: str, tool_input: Mapping[str, Any]) -> Ask | None:
    """Return the ask that a tool call makes, or None for an ordinary tool call.

    None also if a question has no text that is the agent's own: the gate refuses such a call with words, or
    the agent's program does because of its shape.
    """
    if name == "AskUserQuestion":
        if not is_askable(dict(tool_input)):
            return None
        items = tuple(_question_item(item) for item in tool_input["questions"])
        about_goal = any(item.header.strip().lower() == GOAL for item in items)
        return Ask(tool_use_id, "AskUserQuestion", items, dict(tool_input), about_goal=about_goal)
    if name == "Bash":
        command = str(tool_input.get("command", ""))
        if questions := questions_in(command):
            items = tuple(AskItem(question) for question in questions)
            about_goal = asks_about_goal(command)
            return Ask(tool_use_id, "command", items, dict(tool_input), about_goal=about_goal)
    return None


def _question_item(written: Mapping[str, Any]) -> AskItem:
    return AskItem(
        question=written["question"],
        header=str(written.get("header") or ""),
        options=tuple(
            Option(*(str(option.get(name) or "") for name in ("label", "description", "preview")))
            for option in written.get("options") or ()
        ),
        multi_select=written.get("multiSelect") is True,
    )

"""What the agent's program asks permission for although the step has the tool, and what it is told.

Claude Code asks before each change of a file that it protects (`.git/`, `.vscode/`, `.husky/`, `.npmrc`,
`.mcp.json`, `.claude/`, …), before some commands such as `rm -rf /`, and for what the step's permissions do
not cover. Nobody sits before a running agent, so the step's own rules answer: a protected file inside the
workspace is a file like any other. The sandbox is what holds; this decides what the agent is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

from tasks_app.agent.gate.hook import refusal
from tasks_app.agent.gate.patterns import WRITING, allowed, every_command_matches, within
from tasks_app.agent.port import RunOrder

CanUseTool = Callable[
    [str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResultAllow | PermissionResultDeny]
]
#: How the agent's program says that it asks because of the file, with the file's path.
_PROTECTED = re.compile(r"\AClaude requested permissions to (?:edit|write to) (/.+?)(?:,| which )", re.DOTALL)
_RULE = re.compile(r"\A([A-Za-z][\w-]*)(?:\((.*)\))?\Z", re.DOTALL)


def permission_for(order: RunOrder) -> CanUseTool:
    """What the SDK calls when the agent's program asks for permission in this run."""

    async def can_use_tool(
        tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        reason = refusal_of(order, tool, tool_input, asked_because=context.decision_reason or "")
        return PermissionResultDeny(message=reason) if reason else PermissionResultAllow()

    return can_use_tool


def refusal_of(order: RunOrder, tool: str, tool_input: Mapping[str, Any], *, asked_because: str) -> str:
    """Why the call is not made, in words for the agent; empty if it is made.

    `asked_because` is the reason that the agent's program gave, empty if it gave none.
    """
    protected = _PROTECTED.match(asked_because)
    path = str(tool_input.get(WRITING[tool], "")) if tool in WRITING else protected[1] if protected else ""
    return (
        _against_planning(order, tool)
        or _against_tools(order, tool, tool_input)
        or (_against_place(order, path) if path else "")
        or ("" if path else _as_the_program_says(tool, asked_because))
    )


def without_asking(order: RunOrder, rules: Iterable[str]) -> list[str]:
    """The step's permissions that need no question to the portal.

    While the step plans, `Bash` is none of them: Claude Code runs shell commands that only read without
    asking, and would run any other that a permission covers, in its plan mode too.
    """
    return [rule for rule in rules if not (_is_planning(order) and _changes(rule))]


def _changes(rule: str) -> bool:
    return rule.partition("(")[0] in {"Bash", *WRITING} and not rule.startswith("Bash(cat-herder ask")


def _is_planning(order: RunOrder) -> bool:
    """Until the plan is approved; the run that hands in the approval is past it."""
    approved = any(
        one.allow and one.for_input is not None and one.updated_input is not None
        for one in order.decisions.values()
    )
    return order.planning and not approved


def _against_planning(order: RunOrder, tool: str) -> str:
    if not _is_planning(order):
        return ""
    return f"{tool} was not used: this step plans first, and changes nothing before its plan is approved."


def _against_tools(order: RunOrder, tool: str, tool_input: Mapping[str, Any]) -> str:
    if order.allowed_tools is None:
        return ""
    rules = [found for rule in order.allowed_tools if (found := _RULE.match(rule))]
    mine = [found[2] for found in rules if found[1] == tool or {found[1], tool} <= set(WRITING)]
    if not mine:
        return f"{tool} is not among the tools of this step."
    globs = [glob for glob in mine if glob is not None]
    if len(globs) < len(mine) or _covered(order, globs, tool, tool_input):
        return ""
    listed = ", ".join(rule for rule in order.allowed_tools if rule.startswith(tuple({tool, *_kin(tool)})))
    return f"This call of {tool} is not allowed in this step, which has only {listed}."


def _kin(tool: str) -> Iterator[str]:
    """A rule for one of the tools that write holds for all of them."""
    if tool in WRITING:
        yield from WRITING


def _covered(order: RunOrder, globs: list[str], tool: str, tool_input: Mapping[str, Any]) -> bool:
    if tool == "Bash":
        return every_command_matches(str(tool_input.get("command", "")), globs)
    if tool not in WRITING:
        return False
    path = within(str(tool_input.get(WRITING[tool], "")), str(order.places.workspace), "")
    return path is not None and allowed(path, [glob.removeprefix("/") for glob in globs])


def _against_place(order: RunOrder, path: str) -> str:
    """Links are followed: one that leads out of the workspace makes no file outside of it a file inside."""
    inside = within(path, str(order.places.workspace), "")
    if inside is None:
        where = os.path.realpath(os.path.join(order.places.workspace, path))  # noqa: PTH118
        return f"{path} was not changed: it is outside the workspace of this task ({where})."
    if order.allow_write is not None and not allowed(inside, list(order.allow_write)):
        return refusal(order.step, list(order.allow_write), inside)
    return ""


def _as_the_program_says(tool: str, reason: str) -> str:
    """What neither the step's tools nor its files forbid is refused by the agent's program itself."""
    said = reason or "it asks for a permission that nobody can give while the agent runs"
    return f"{tool} was stopped by Claude Code, not by this step's rules: {said}"

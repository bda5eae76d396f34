"""Answers to the permission requests of the agent's program.

Claude Code asks before each change of a file that it protects (`.git/`, `.vscode/`, `.husky/`, `.npmrc`,
`.mcp.json`, `.claude/`, …), before some commands such as `rm -rf /`, and for everything that the step's
permissions do not cover. No human watches a running agent, so the step's own rules decide: a protected file
inside the workspace is treated like any other file. The sandbox protects the machine; this module only
decides what the agent is told.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

from tasks_app.agent.gate.hook import is_own_command, outside, refusal
from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.agent.gate.patterns import WRITING, permitted, rules_for
from tasks_app.agent.port import RunOrder
from tasks_app.sandbox import UNCHANGED, Placement

CanUseTool = Callable[
    [str, dict[str, Any], ToolPermissionContext], Awaitable[PermissionResultAllow | PermissionResultDeny]
]
#: The reason of a request that concerns a protected file, with the file's path.
_PROTECTED = re.compile(r"\AClaude requested permissions to (?:edit|write to) (/.+?)(?:,| which )", re.DOTALL)
#: A tool of Claude Code that no agent is to call, as its description says.
PLACEHOLDER = "DeferredToolPlaceholder"
ONLY_READS = (
    "Commands that are known to only read are run (an option that is not known counts as writing: leave it "
    "out), and `cat-herder` as a command of its own, without pipe or redirection."
)


def permission_for(order: RunOrder, placement: Placement = UNCHANGED) -> CanUseTool:
    """Return the function that the SDK calls when the agent's program asks for permission in this run.

    The paths in its requests are those that the agent sees, as `placement` says.
    """

    async def can_use_tool(
        tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        asked_because = context.decision_reason or ""
        reason = refusal_of(order, tool, tool_input, asked_because=asked_because, placement=placement)
        if reason:
            return PermissionResultDeny(message=reason)
        return PermissionResultAllow()

    return can_use_tool


def refusal_of(
    order: RunOrder,
    tool: str,
    tool_input: Mapping[str, Any],
    *,
    asked_because: str,
    placement: Placement = UNCHANGED,
) -> str:
    """Return why the call is refused, in words for the agent, or "" if it is allowed.

    `asked_because` is the reason that the agent's program gave, or "".
    """
    protected = _PROTECTED.match(asked_because)
    path = protected[1] if protected else ""
    if tool in WRITING:
        path = str(tool_input.get(WRITING[tool], ""))
    if tool == "Bash" and is_own_command(str(tool_input.get("command", ""))):
        return ""
    if tool == PLACEHOLDER:
        return f"{tool} does nothing: it only keeps a place in the list of tools. Use another tool."
    if is_planning(order):
        reason = (
            f"{tool} was not used: this step plans first, and changes nothing before its plan is approved."
        )
        if tool == "Bash":
            return f"{reason} {ONLY_READS}"
        return reason
    if refused := _tool_refusal(order, tool, tool_input, placement):
        return refused
    if path:
        target = _real_path(order, path, placement)  # links are followed: none can lead out of the workspace
        inside = _in_workspace(order, target, placement)
        if inside is None:
            return outside(path, str(target), str(placement.inside(order.paths.workspace)))
        if order.allow_write is not None and not allowed(inside, list(order.allow_write)):
            return refusal(order.step, list(order.allow_write), inside)
        return ""
    # The step forbids neither the tool nor a file: the agent's program itself objects.
    reason = asked_because or "it asks for a permission that nobody can give while the agent runs"
    return f"{tool} was stopped by Claude Code, not by this step's rules: {reason}"


def allowed_without_request(order: RunOrder, rules: Iterable[str]) -> list[str]:
    """Return the step's permissions for which Claude Code need not ask the portal.

    Rules with a pattern of files are left out, because Claude Code reads them in a language of its own.
    While the step plans, so is `Bash`. In plan mode Claude Code runs shell commands that only read without a
    request, but with such a permission it would run all others, too.
    """
    changing = {"Bash", *WRITING} if is_planning(order) else set()
    kept = []
    for rule in rules:
        tool, _, argument = rule.partition("(")
        is_path = tool in WRITING and bool(argument)
        if rule.startswith("Bash(cat-herder ask") or not (is_path or tool in changing):
            kept.append(rule)
    return kept


def is_planning(order: RunOrder) -> bool:
    """Return whether the plan still needs approval. The run that hands in the approval no longer plans."""
    approved = any(
        one.allow and one.for_input is not None and one.updated_input is not None
        for one in order.permissions.values()
    )
    return order.planning and not approved


def _tool_refusal(order: RunOrder, tool: str, tool_input: Mapping[str, Any], placement: Placement) -> str:
    if order.allowed_tools is None:
        return ""
    named = [rule[0] for rule in rules_for(order.allowed_tools, tool)]
    if not named and tool == "Bash":
        return f"The command was not run: in this step Bash changes nothing. {ONLY_READS}"
    if not named:
        return f"{tool} is not among the tools of this step."
    inside = None
    if path := str(tool_input.get(WRITING.get(tool, ""), "")):
        inside = _in_workspace(order, _real_path(order, path, placement), placement)
    if permitted(named, tool, tool_input, inside):
        return ""
    return f"This call of {tool} is not allowed in this step, which has only {', '.join(named)}."


def _real_path(order: RunOrder, path: str, placement: Placement) -> Path:
    """Return where a path of the agent leads, as the agent sees it."""
    return placement.real_path(placement.inside(order.paths.workspace) / path)


def _in_workspace(order: RunOrder, real_path: Path, placement: Placement) -> str | None:
    """Return the path relative to the workspace, or None if it is not below it."""
    workspace = placement.real_path(placement.inside(order.paths.workspace))
    if real_path == workspace or not real_path.is_relative_to(workspace):
        return None
    return str(real_path.relative_to(workspace))

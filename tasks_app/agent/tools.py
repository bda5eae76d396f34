"""The names of Claude Code's tools. All other modules use these lists.

Standard library only. A test compares the lists with the installed program.
"""

from __future__ import annotations

import re

#: What a step without `allowedTools` may use.
USUAL = ("Bash", "Read", "Write", "Edit", "Glob", "Grep", "NotebookEdit", "WebFetch")
#: Tools that fail without a network.
OF_NETWORK = frozenset({"WebFetch", "WebSearch"})
#: Every tool that the installed version has.
BUILT_IN = frozenset({
    *USUAL,
    "AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterPlanMode", "EnterWorktree",
    "ExitPlanMode", "ExitWorktree", "ListAgents", "Monitor", "ReportFindings", "ScheduleWakeup",
    "SendMessage", "Skill", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskStop", "TaskUpdate",
    "ToolSearch", "WebSearch", "Workflow",
})  # fmt: skip
#: Other names of such tools, some from earlier versions. They are not typing errors, but have no effect.
OTHER_NAMES = frozenset({
    "Agent", "BashOutput", "KillShell", "LS", "MultiEdit", "NotebookRead", "SlashCommand", "TaskOutput",
    "TodoWrite",
})  # fmt: skip
KNOWN = BUILT_IN | OTHER_NAMES
#: The prefix of tools of MCP servers.
MCP = "mcp__"

#: The beginnings of results that the program itself writes for calls that were not made, or whose process
#: died.
_BROKEN_OFF = (
    "[Tool call interrupted: ",
    "[Tool call did not complete: ",
    "[Tool call not completed: ",
    "[Tool call not made: ",
    "[Tool call not run: ",
    "[Tool call skipped: ",
    "[Tool call result not in this copy: ",
    "[Tool result missing ",
)


#: How the result of a call begins that the agent's program itself rejected, for example because of a wrong
#: input: nobody has seen what it asks, the model is told why, and words of a hook beside it are dropped.
REJECTED = "<tool_use_error>"


def was_broken_off(result: str) -> bool:
    """Return whether a call's result only says that it is empty."""
    return result.lstrip().startswith(_BROKEN_OFF)


#: Sentences by which the portal or the agent's program refuses a call. `gate/hook.py`, `call_permissions.py`
#: and `permission_requests.py` write them.
_REFUSED = re.compile(
    r"nobody was asked|nobody can be asked|was not made|was not run: in this step|was not used: this step"
    r"|is not among the tools of this step|is not allowed in this step|The step “[^”]*” may write"
    r"|was not written: it is outside the workspace|was stopped by Claude Code|Permission to use \w+ has",
    re.IGNORECASE,
)
#: Characters of a result in which they are looked for.
_REFUSAL = 2_000


#: What the program writes before the words of the gate.
_HOOK = re.compile(r"\APreToolUse:\w+ hook error: ")


def without_hook_name(result: str) -> str:
    """Return the result of a refused call as the gate said it, for people."""
    return _HOOK.sub("", result)


def was_refused(result: str) -> bool:
    """Return whether the result of a failed call says that it was refused."""
    return _REFUSED.search(result[:_REFUSAL]) is not None

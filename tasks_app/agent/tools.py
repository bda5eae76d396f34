"""The tools of Claude Code, by name: the one list that everything else asks.

Standard library only. A test holds the list against the program that is installed.
"""

from __future__ import annotations

#: What a step without `allowedTools` may use.
USUAL = ("Bash", "Read", "Write", "Edit", "Glob", "Grep", "NotebookEdit", "WebFetch")
#: Every tool that the installed version has.
BUILT_IN = frozenset({
    *USUAL,
    "AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterPlanMode", "EnterWorktree",
    "ExitPlanMode", "ExitWorktree", "ListAgents", "Monitor", "ReportFindings", "ScheduleWakeup",
    "SendMessage", "Skill", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskStop", "TaskUpdate",
    "ToolSearch", "WebSearch", "Workflow",
})  # fmt: skip
#: Other names that such tools have, or had in earlier versions: no typing errors, and nothing comes of them.
OTHER_NAMES = frozenset({
    "Agent", "BashOutput", "KillShell", "LS", "MultiEdit", "NotebookRead", "SlashCommand", "TaskOutput",
    "TodoWrite",
})  # fmt: skip
KNOWN = BUILT_IN | OTHER_NAMES
#: How the names of tools of MCP servers begin.
MCP = "mcp__"

#: How the program begins what it writes itself as the result of a call that was not made, or whose process
#: died.
_BROKEN_OFF = (
    "[Tool call interrupted: ",
    "[Tool call did not complete: ",
    "[Tool call not completed: ",
    "[Tool call not run: ",
    "[Tool call skipped: ",
    "[Tool result missing ",
)


def was_broken_off(result: str) -> bool:
    """Whether a call's result says only that there is none."""
    return result.lstrip().startswith(_BROKEN_OFF)

"""The names of Claude Code's tools. All other modules use these lists.

Standard library only. A test compares the lists with the installed program.
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
#: Other names of such tools, some from earlier versions. They are no typing errors, but have no effect.
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
    "[Tool call not run: ",
    "[Tool call skipped: ",
    "[Tool result missing ",
)


def was_broken_off(result: str) -> bool:
    """Return whether a call's result only says that it has none."""
    return result.lstrip().startswith(_BROKEN_OFF)

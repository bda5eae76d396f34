"""Print how to fetch a task's result, and which files were left out of it."""

from __future__ import annotations

from tasks_app.cli.screen import Screen
from tasks_app.core.control_characters import strip_controls
from tasks_app.models import Task
from tasks_app.reporting.commands import fetch_command_for


def show_result(screen: Screen, task: Task) -> None:
    """Print the command that fetches the result, if anything is recorded."""
    if fetch := fetch_command_for(task):
        screen.say(f"Fetch the result with  {fetch}", indent=2, wrap=False)
    for note in task.left_out:
        screen.say(strip_controls(note), indent=2, style="yellow")

"""What a terminal says of a task's result: how to get it, and what of the work is not in it."""

from __future__ import annotations

from tasks_app.cli.screen import Screen
from tasks_app.core.control_characters import strip_controls
from tasks_app.models import Task
from tasks_app.reporting.commands import fetch_command_for


def show_result(screen: Screen, task: Task) -> None:
    """Nothing if nothing is recorded yet."""
    if fetch := fetch_command_for(task):
        screen.say(f"Get the work with  {fetch}", indent=2, wrap=False)
    for note in task.left_out:
        screen.say(strip_controls(note), indent=2, style="yellow")

"""Print how to fetch a task's result, which decisions it followed, and which files were left out of it."""

from __future__ import annotations

from tasks_app.cli.screen import Screen
from tasks_app.core.control_characters import strip_controls
from tasks_app.models import DecisionEvent, Task
from tasks_app.reporting.commands import fetch_command_for


def show_result(screen: Screen, task: Task) -> None:
    """Print which decisions were followed, and the command that fetches the result if there is one."""
    if followed := DecisionEvent.objects.followed_by([task])[task.pk]:
        screen.say(f"Followed {', '.join(f'D-{number}' for number in followed)}", indent=2)
    if fetch := fetch_command_for(task):
        screen.say(f"Fetch the result with  {fetch}", indent=2, wrap=False)
    for note in task.left_out:
        screen.say(strip_controls(note), indent=2, style="yellow")

"""Print a task's result: what its agents said, how to fetch it, and which files were left out of it."""

from __future__ import annotations

from tasks_app.cli.screen import Screen
from tasks_app.core.control_characters import strip_controls
from tasks_app.core.phases import Phase
from tasks_app.models import DecisionEvent, Task
from tasks_app.services.commands import fetch_command_for
from tasks_app.services.results import accounts_of, building_account_first


def show_result(screen: Screen, task: Task, *, was_printed: bool = False) -> None:
    """Print what agents said, which decisions were followed, and the command that fetches the result.

    `was_printed`: the last message has just been printed, so it is left out if it is the only one.
    """
    if task.phase == Phase.DONE:
        _show_accounts(screen, task, was_printed=was_printed)
    if followed := DecisionEvent.objects.followed_by([task])[task.pk]:
        screen.say(f"Followed {', '.join(f'D-{number}' for number in followed)}", indent=2)
    if fetch := fetch_command_for(task):
        screen.say(f"Fetch the result with  {fetch}", indent=2, wrap=False)
    for note in task.left_out:
        screen.say(strip_controls(note), indent=2, style="yellow")


def _show_accounts(screen: Screen, task: Task, *, was_printed: bool) -> None:
    """Print what the agents of the step said that built the result, and name the steps of the others."""
    accounts = building_account_first(accounts_of([task]))
    if not accounts or (was_printed and sum(len(one.messages) for one in accounts) == 1):
        return
    built, *others = accounts
    for message in built.messages:
        run = f", {message.title}" if len(built.messages) > 1 else ""
        screen.say(f"{built.step.name}{run}", indent=2, style="bold")
        screen.say(message.text, indent=4)
    if others:
        names = ", ".join(f"{one.step.name} {one.changes}".strip() for one in others)
        screen.say(f"Other steps reported too: {names}. `status {task.pk} --json` has it all.", indent=2)

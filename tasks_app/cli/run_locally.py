"""Working on a task here at the terminal, as run_task, run_sequence, retry and watch_tasks do."""

from __future__ import annotations

from django.conf import settings

from tasks_app.cli.command import Exit
from tasks_app.cli.screen import Screen
from tasks_app.cli.task_session import Sitting
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import RESUMABLE, Phase
from tasks_app.models import Task
from tasks_app.operations import local_sandbox
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.tasks import go_on, start_task


def work_here(task: Task, principal: Principal, screen: Screen, *, may_prompt: bool) -> Exit:
    """Start the task or go on with it, and stay with it until it rests. Raises NotAllowed."""
    return sit_down(task, principal, screen, may_prompt=may_prompt)[0]


def sit_down(task: Task, principal: Principal, screen: Screen, *, may_prompt: bool) -> tuple[Exit, bool]:
    """The same, and whether the person has left."""
    if task.phase == Phase.DONE:
        screen.say(f"Task {task.pk} is done already: {task.title}")
        return Exit.DONE, False
    require_actor(principal, task.project)
    sitting = Sitting(task, principal, screen, may_prompt=may_prompt)
    introduce(task, screen)
    say_surroundings(screen)
    set_going(task, principal)
    return sitting.run(), sitting.left


def introduce(task: Task, screen: Screen) -> None:
    screen.say(f"Task {task.pk} · {task.project.name}/{task.slug} · {task.title}", style="bold")
    screen.say(f"branch {task.branch}, pipeline {task.pipeline}, threshold {task.threshold}", indent=2)
    if task.checkout:
        screen.say(f"works on the project's own branch {task.checkout}", indent=2, style="yellow")


def say_surroundings(screen: Screen) -> None:
    """What is not as one might think: no model, no sandbox."""
    if settings.ENVIRONMENT.rehearsal:
        screen.say("Rehearsal: the agent is the real Claude Code, the model behind it is a script.", indent=2)
    if reason := local_sandbox.sandbox().reason:
        screen.say(f"No sandbox: {reason}", indent=2)


def set_going(task: Task, principal: Principal) -> None:
    """Let it be due, for this process to take up: no worker is rung for."""
    try:
        if task.not_started:
            start_task(task, by=principal, ring=False)
        elif task.phase in RESUMABLE:
            go_on(task, by=principal, ring=False)
    except IllegalMove:
        pass  # somebody was first; the rows tell what it is now

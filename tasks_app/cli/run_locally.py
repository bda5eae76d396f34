"""Run a task in this terminal, for run_task, run_sequence, retry and watch_tasks."""

from __future__ import annotations

from django.conf import settings

from tasks_app.cli.command import Exit
from tasks_app.cli.task_session import TaskSession
from tasks_app.cli.terminal import Screen
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import Phase
from tasks_app.models import Task
from tasks_app.operations import local_sandbox
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.tasks import resume_task, start_task


def run_task_locally(task: Task, principal: Principal, screen: Screen, *, may_prompt: bool) -> Exit:
    """Start or resume the task and follow it until it stops. Raises NotAllowed."""
    return run_task_session(task, principal, screen, may_prompt=may_prompt)[0]


def run_task_session(
    task: Task, principal: Principal, screen: Screen, *, may_prompt: bool
) -> tuple[Exit, bool]:
    """Do the same, and also return whether the person pressed Ctrl+C."""
    if task.phase == Phase.DONE and not task.finished_early:
        screen.say(f"Task {task.pk} is already done: {task.title}")
        return Exit.DONE, False
    require_actor(principal, task.project)
    session = TaskSession(task, principal, screen, may_prompt=may_prompt)
    introduce(task, screen)
    warn_about_environment(screen)
    make_due(task, principal)
    return session.run(), session.left


def introduce(task: Task, screen: Screen) -> None:
    screen.say(f"Task {task.pk} · {task.project.name}/{task.slug} · {task.title}", style="bold")
    screen.say(f"branch {task.branch}, pipeline {task.pipeline}, threshold {task.threshold}", indent=2)
    if task.checkout:
        screen.say(f"works directly on the project's branch {task.checkout}", indent=2, style="yellow")


def warn_about_environment(screen: Screen) -> None:
    """Say if there is no real model or no sandbox."""
    if settings.ENVIRONMENT.rehearsal:
        screen.say("Rehearsal: the agent is the real Claude Code, the model behind it is a script.", indent=2)
    if reason := local_sandbox.sandbox().reason:
        screen.say(f"No sandbox: {reason}", indent=2)


def make_due(task: Task, principal: Principal) -> None:
    """Make the task due for this process, without notifying a worker."""
    try:
        if task.not_started:
            start_task(task, by=principal, notify=False)
        elif task.can_resume:
            resume_task(task, by=principal, notify=False)
    except IllegalMove:
        pass  # somebody else was first; the rows have the current phase

"""Working on tasks here at the terminal: what run_task, run_sequence, retry and watch_tasks share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from tasks_app import workshop
from tasks_app.actions.access import require_actor
from tasks_app.actions.tasks import go_on, start_task
from tasks_app.config.threshold import threshold_from_text
from tasks_app.errors import IllegalMove
from tasks_app.models import Project, Task, User
from tasks_app.state.phases import RESUMABLE, Phase
from tasks_app.terminal.command import Exit
from tasks_app.terminal.screen import Screen
from tasks_app.terminal.sitting import Sitting


def add_new_arguments(parser: CommandParser, *, what: str) -> None:
    """Options of commands that make a task or a sequence."""
    parser.add_argument(
        "--threshold", metavar="N", help=f"0 never asks … 5 asks about any ambiguity; for a new {what}"
    )
    parser.add_argument("--pipeline", metavar="NAME", help=f"the pipeline to run through; for a new {what}")
    parser.add_argument(
        "--new", action="store_true", help=f"make a new {what} even if an earlier one has not ended"
    )


def add_here_arguments(parser: CommandParser) -> None:
    """Options of commands that work in this terminal."""
    parser.add_argument(
        "--no-input",
        action="store_true",
        help="never prompt: when the agent asks, say how to answer and exit with 3",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on stdout at the end; what happens meanwhile goes to stderr",
    )


def threshold_option(options: dict[str, Any]) -> int | None:
    text = options["threshold"]
    return None if text is None else threshold_from_text(text, where="--threshold")


def place_named(named: str, project: Project) -> Path:
    """The path from here, else from the top of the project's repository if that is a folder."""
    here = Path(named)
    there = Path(project.source) / named
    return there if not here.exists() and Path(project.source).is_dir() and there.exists() else here


def work_here(task: Task, person: User, screen: Screen, *, may_prompt: bool) -> Exit:
    """Start the task or go on with it, and stay with it until it rests. Raises NotAllowed."""
    return sit_down(task, person, screen, may_prompt=may_prompt)[0]


def sit_down(task: Task, person: User, screen: Screen, *, may_prompt: bool) -> tuple[Exit, bool]:
    """The same, and whether the person has left."""
    if task.phase == Phase.DONE:
        screen.say(f"Task {task.pk} is done already: {task.title}")
        return Exit.DONE, False
    require_actor(person, task.project)
    sitting = Sitting(task, person, screen, may_prompt=may_prompt)
    introduce(task, screen)
    say_surroundings(screen)
    set_going(task, person)
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
    if reason := workshop.jail().reason:
        screen.say(f"No sandbox: {reason}", indent=2)


def set_going(task: Task, person: User) -> None:
    """Let it be due, for this process to take up: no worker is rung for."""
    try:
        if task.not_started:
            start_task(task, by=person, ring=False)
        elif task.phase in RESUMABLE:
            go_on(task, by=person, ring=False)
    except IllegalMove:
        pass  # somebody was first; the rows tell what it is now

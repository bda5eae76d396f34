"""`cat-herder watch_tasks`: run task files as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_project
from tasks_app.cli.options import resolve_path
from tasks_app.cli.repository import task_file_states
from tasks_app.cli.task_session import warn_about_environment
from tasks_app.cli.watch import Watch
from tasks_app.config.pipeline import load_project_config
from tasks_app.core.amounts import counted
from tasks_app.core.errors import BadInput
from tasks_app.models import Project
from tasks_app.permissions import projects_visible_to, require_actor
from tasks_app.services.projects.settings import CONFIG_FILE


class Command(TerminalCommand):
    help = """\
Watches a folder of task files: each file that is saved from now on becomes a task and is run, one after
the other, in this terminal as run_task does. Files that are there already are left alone until they
are changed; --existing runs them as well. Unfinished tasks of an earlier watch are resumed.

A file whose content ran before is not run again, also after a restart. Files whose names begin with _
and files that are not Markdown are left alone. A faulty file is reported with its line and does not end
the watch; Ctrl+C does."""
    examples = """\
exit codes: 0 ended by Ctrl+C while no task was running, 130 while one was; with --once 0 all done,
1 something failed or is faulty, 3 a task waits for an answer; 2 wrong usage

examples:
  cat-herder watch_tasks --project shop                the taskFolder of the project's cat-herder.yaml
  cat-herder watch_tasks --project shop ~/code/shop/todo
  cat-herder watch_tasks --project shop --parallel 3   three at a time, in a running portal
  cat-herder watch_tasks --project shop --existing     what is there now, then what is saved
  cat-herder watch_tasks --project shop --once         what is there now, then end"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "folder", metavar="FOLDER", nargs="?",
            help="looked for here, then in the project's repository; default: its taskFolder",
        )  # fmt: skip
        parser.add_argument("--project", metavar="NAME", required=True, help="the project")
        parser.add_argument(
            "--existing", action="store_true", help="also run the files that are there already"
        )
        parser.add_argument("--once", action="store_true", help="run what is there and end")
        parser.add_argument(
            "--parallel", metavar="N", type=int, default=0,
            help="leave the work to workers of the portal, N tasks at a time",
        )  # fmt: skip
        parser.add_argument(
            "--no-input", action="store_true", help="never prompt: say how to answer, and go on with the next"
        )
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        screen = self.screen_for(options)
        principal = acting_principal(options["username"])
        project = find_project(options["project"], projects=projects_visible_to(principal))
        require_actor(principal, project)
        if options["parallel"] < 0:
            raise BadInput("a number from 1 is needed.", where="--parallel")
        folder = _resolve_folder(options["folder"], project)
        screen.say(f"Watching {folder} for tasks of {project.name}", style="bold")
        existing, takes_all = task_file_states(folder), options["once"] or options["existing"]
        there = f"{counted(len(existing), 'task file')} there"
        if takes_all or not existing:
            existing = {}
            screen.say(f"{there}; what ran before is not run again", indent=2)
        else:
            screen.say(f"{there}, left alone until they are changed; --existing runs them", indent=2)
        if options["parallel"]:
            screen.say("The tasks run in the portal, which must be running (cat-herder up).", indent=2)
        else:
            warn_about_environment(screen)
        watch = Watch(
            project, folder, principal, screen,
            may_prompt=not options["no_input"], parallel=options["parallel"],
            before=existing,
        )  # fmt: skip
        return watch.run(once=options["once"])


def _resolve_folder(named: str | None, project: Project) -> Path:
    """Return the folder to watch. Raises BadInput if it is not on this machine."""
    top = Path(project.source)
    if named is not None:
        folder = resolve_path(named, project)
    elif top.is_dir():
        # `taskFolder` of cat-herder.yaml as it is now, committed or not.
        path, text = top / CONFIG_FILE, None
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
        folder = top / load_project_config(text, where=str(path)).task_folder
    else:
        raise BadInput(f"{project.source} is not on this machine: name a folder here.", where="FOLDER")
    if not folder.is_dir():
        raise BadInput("there is no such folder.", where=str(folder))
    return folder.resolve()

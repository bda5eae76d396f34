"""`cat-herder run_sequence`: run a folder of tasks in the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import TerminalCommand
from tasks_app.cli.lookup import (
    SEQUENCE,
    acting_principal,
    add_user_argument,
    find_sequence,
    find_unfinished_sequence,
)
from tasks_app.cli.options import (
    add_creation_arguments,
    add_terminal_arguments,
    chosen_project,
    creation_options,
    refuse_creation_options,
    resolve_path,
)
from tasks_app.cli.sequence_session import run_sequence_locally
from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.models import Project, Sequence
from tasks_app.permissions import Principal, sequences_visible_to
from tasks_app.services.sequences import create_sequence


class Command(TerminalCommand):
    help = """\
Runs a folder of tasks in this terminal, one after the other in the order of their names, on one branch
and in one workspace.

Files whose names begin with _ are left out. After each task the folder is read again as the agent left
it, so a task that an agent wrote is run as well. Questions are asked at the prompt, as in run_task.

A task that fails stops the sequence; --continue resumes it after the cause is fixed.
Ctrl+C while the agent works interrupts the task; the same command resumes it."""
    examples = """\
exit codes: 0 done, 1 failed or cancelled, 2 wrong usage, 3 waiting for an answer, 130 interrupted

examples:
  cat-herder run_sequence tasks/new-prices --project shop
  cat-herder run_sequence tasks/new-prices --project shop --ask ann --ask payments
  cat-herder run_sequence tasks/new-prices --project shop --continue
  cat-herder run_sequence 3                            resume sequence 3
  cat-herder run_sequence tasks/new-prices --project shop --no-input --json > result.json"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "sequence",
            metavar="FOLDER|ID",
            help="a folder of task files, as committed in the project's repository, or the id of a "
            "sequence. An unfinished sequence of the folder is resumed",
        )
        add_creation_arguments(parser, what="sequence", source="folder")
        parser.add_argument(
            "--continue",
            dest="go_on",
            action="store_true",
            help="resume the folder's last sequence although it failed or was cancelled",
        )
        parser.add_argument(
            "--allow",
            metavar="KEY",
            default="",
            help="let the next task do more than the first one; the key is printed where it waits for that",
        )
        add_terminal_arguments(parser)
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        principal = acting_principal(options["username"])
        sequence = self._find_or_create(options, principal)
        code = run_sequence_locally(
            sequence,
            principal,
            self._screen,
            may_prompt=not options["no_input"],
            allow=options["allow"],
        )
        if options["json"]:
            self.write_outcome(sequence, code)
        return code

    def _find_or_create(self, options: dict[str, Any], principal: Principal) -> Sequence:
        project = chosen_project(options, principal)
        if re.fullmatch(rf"#?[0-9]+|{SEQUENCE}.*", options["sequence"]):
            return _find_by_id(options, principal, project)
        if project is None:
            raise BadInput("Name the project of the folder: --project NAME.")
        if options["new"] and options["go_on"]:
            raise BadInput("--new and --continue exclude each other.")
        return self._find_or_create_by_folder(options, principal, project)

    def _find_or_create_by_folder(
        self, options: dict[str, Any], principal: Principal, project: Project
    ) -> Sequence:
        folder = _folder_in_repository(options["sequence"], project)
        like = creation_options(options)
        if not options["new"]:
            earlier = find_unfinished_sequence(project, folder=folder, also_ended=options["go_on"], **like)
            if earlier:
                self._screen.say(f"Resuming sequence {earlier.pk} of this folder (--new creates another).")
                return earlier
        if options["go_on"]:
            raise BadInput(
                "There is no sequence to resume; without --continue a new one is created.", where=folder
            )
        self._mention_ended(project, folder)
        return create_sequence(project, folder, by=principal, **like)

    def _mention_ended(self, project: Project, folder: str) -> None:
        earlier = project.sequences.filter(folder=folder).first()
        if earlier and earlier.phase != Phase.DONE:
            self._screen.say(
                f"A new sequence starts with the first task. The last one is {earlier.phase_display.label}; "
                f"to resume it:  cat-herder run_sequence {earlier.pk} --continue"
            )


def _find_by_id(options: dict[str, Any], principal: Principal, project: Project | None) -> Sequence:
    refuse_creation_options(options, what="sequence", source="folder")
    sequences = sequences_visible_to(principal)
    return find_sequence(
        options["sequence"].removeprefix("#"),
        sequences=sequences.filter(project=project) if project else sequences,
    )


def _folder_in_repository(named: str, project: Project) -> str:
    """Return the folder's path in the repository, also if it was given relative to the working directory."""
    path, top = resolve_path(named, project), Path(project.source)
    if top.is_dir() and path.is_dir() and path.resolve().is_relative_to(top.resolve()):
        return str(path.resolve().relative_to(top.resolve()))
    return named.rstrip("/") or named

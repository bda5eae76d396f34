"""`manage.py run_sequence`: a folder of tasks, at the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import TerminalCommand
from tasks_app.cli.lookup import SEQUENCE, sequence_meant, unended_sequence
from tasks_app.cli.options import (
    add_here_arguments,
    add_new_arguments,
    place_named,
    project_chosen,
    refuse_new_options,
    wanted,
)
from tasks_app.cli.acting_user import acting_principal, add_person_argument
from tasks_app.cli.sequence_session import go_through
from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.models import Project, Sequence
from tasks_app.permissions import Principal, sequences_visible_to
from tasks_app.services.sequences import create_sequence


class Command(TerminalCommand):
    help = """\
Works on a folder of tasks here at the terminal, one after the other in the order of their names, on one
branch and in one workspace.

Files whose names begin with _ are left out. After each task the folder is read again as the agent left
it, so a task that an agent wrote is run as well. Questions are asked at the prompt, as in run_task.

A task that fails stops the sequence; --continue goes on with it once what was in its way is mended.
Ctrl+C while the agent works interrupts the task; the same command goes on from there."""
    examples = """\
exit codes: 0 done, 1 failed or cancelled, 2 wrong use, 3 waiting for an answer, 130 interrupted

examples:
  manage.py run_sequence tasks/new-prices --project shop
  manage.py run_sequence tasks/new-prices --project shop --continue
  manage.py run_sequence 3                            go on with sequence 3
  manage.py run_sequence tasks/new-prices --project shop --no-input --json > result.json"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "sequence",
            metavar="FOLDER|ID",
            help="a folder of task files, as committed in the project's repository, or the id of a "
            "sequence. A folder whose sequence has not ended yet goes on with that one",
        )
        add_new_arguments(parser, what="sequence", source="folder")
        parser.add_argument(
            "--continue",
            dest="go_on",
            action="store_true",
            help="go on with the folder's last sequence although it failed or was cancelled",
        )
        add_here_arguments(parser)
        add_person_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        principal = acting_principal(options["username"])
        sequence = self._sequence(options, principal)
        code = go_through(sequence, principal, self._screen, may_prompt=not options["no_input"])
        if options["json"]:
            self.write_outcome(sequence, code)
        return code

    def _sequence(self, options: dict[str, Any], principal: Principal) -> Sequence:
        project = project_chosen(options, principal)
        if re.fullmatch(rf"#?[0-9]+|{SEQUENCE}.*", options["sequence"]):
            return _by_id(options, principal, project)
        if project is None:
            raise BadInput("Say which project the folder is in: --project NAME.")
        if options["new"] and options["go_on"]:
            raise BadInput("--new and --continue exclude each other.")
        return self._by_folder(options, principal, project)

    def _by_folder(self, options: dict[str, Any], principal: Principal, project: Project) -> Sequence:
        folder = _folder(options["sequence"], project)
        like = wanted(options)
        if not options["new"]:
            earlier = unended_sequence(project, folder=folder, also_ended=options["go_on"], **like)
            if earlier:
                self._screen.say(f"Going on with sequence {earlier.pk} of this folder (--new makes another).")
                return earlier
        if options["go_on"]:
            raise BadInput(
                "There is no sequence to go on with; without --continue one is made.", where=folder
            )
        self._tell_of_ended(project, folder)
        return create_sequence(project, folder, by=principal, **like)

    def _tell_of_ended(self, project: Project, folder: str) -> None:
        earlier = project.sequences.filter(folder=folder).first()
        if earlier and earlier.phase != Phase.DONE:
            self._screen.say(
                f"A new sequence begins with the first task. The last one is {earlier.phase_facts.label}; "
                f"to go on with that:  manage.py run_sequence {earlier.pk} --continue"
            )


def _by_id(options: dict[str, Any], principal: Principal, project: Project | None) -> Sequence:
    refuse_new_options(options, what="sequence", source="folder")
    sequences = sequences_visible_to(principal)
    return sequence_meant(
        options["sequence"].removeprefix("#"),
        sequences=sequences.filter(project=project) if project else sequences,
    )


def _folder(named: str, project: Project) -> str:
    """The folder as the repository names it, also if it was given as a path from here."""
    path, top = place_named(named, project), Path(project.source)
    if top.is_dir() and path.is_dir() and path.resolve().is_relative_to(top.resolve()):
        return str(path.resolve().relative_to(top.resolve()))
    return named.rstrip("/") or named

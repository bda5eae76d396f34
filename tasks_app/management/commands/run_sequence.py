"""`manage.py run_sequence`: a folder of tasks, at the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.actions.access import require_actor
from tasks_app.actions.sequences import create_sequence
from tasks_app.errors import BadInput
from tasks_app.facts import facts_of
from tasks_app.models import Project, Sequence, User
from tasks_app.state.phases import Phase
from tasks_app.terminal.command import Exit, TerminalCommand
from tasks_app.terminal.finding import (
    SEQUENCE,
    project_named,
    sequence_meant,
    unended_sequence,
)
from tasks_app.terminal.here import (
    add_here_arguments,
    add_new_arguments,
    place_named,
    threshold_option,
)
from tasks_app.terminal.people import acting_user, add_person_argument
from tasks_app.terminal.procession import Procession


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
        parser.add_argument("--project", metavar="NAME", help="the project; needed with FOLDER")
        parser.add_argument(
            "--continue",
            dest="go_on",
            action="store_true",
            help="go on with the folder's last sequence although it failed or was cancelled",
        )
        add_new_arguments(parser, what="sequence")
        add_here_arguments(parser)
        add_person_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        person = acting_user(options["username"])
        sequence = self._sequence(options, person)
        code = self._run(sequence, person, may_prompt=not options["no_input"])
        if options["json"]:
            sequence.refresh_from_db()
            self.write_json({**facts_of(sequence), "exit_code": int(code)})
        return code

    def _run(self, sequence: Sequence, person: User, *, may_prompt: bool) -> Exit:
        if sequence.phase == Phase.DONE:
            self._screen.say(f"Sequence {sequence.pk} is done already: {sequence.folder}")
            return Exit.DONE
        require_actor(person, sequence.project)
        return Procession(sequence, person, self._screen, may_prompt=may_prompt).run()

    def _sequence(self, options: dict[str, Any], person: User) -> Sequence:
        projects = Project.objects.visible_to(person)
        project = project_named(options["project"], projects=projects) if options["project"] else None
        if re.fullmatch(rf"#?[0-9]+|{SEQUENCE}.*", options["sequence"]):
            return _by_id(options, person, project)
        if project is None:
            raise BadInput("Say which project the folder is in: --project NAME.")
        if options["new"] and options["go_on"]:
            raise BadInput("--new and --continue exclude each other.")
        return self._by_folder(options, person, project)

    def _by_folder(self, options: dict[str, Any], person: User, project: Project) -> Sequence:
        folder = _folder(options["sequence"], project)
        wanted = {"threshold": threshold_option(options), "pipeline": options["pipeline"]}
        if not options["new"]:
            earlier = unended_sequence(project, folder=folder, also_ended=options["go_on"], **wanted)
            if earlier:
                self._screen.say(f"Going on with sequence {earlier.pk} of this folder (--new makes another).")
                return earlier
        if options["go_on"]:
            raise BadInput(
                "There is no sequence to go on with; without --continue one is made.", where=folder
            )
        self._tell_of_ended(project, folder)
        return create_sequence(project, folder, by=person, **wanted)

    def _tell_of_ended(self, project: Project, folder: str) -> None:
        earlier = project.sequences.filter(folder=folder).first()
        if earlier and earlier.phase != Phase.DONE:
            self._screen.say(
                f"A new sequence begins with the first task. The last one is {earlier.phase_facts.label}; "
                f"to go on with that:  manage.py run_sequence {earlier.pk} --continue"
            )


def _by_id(options: dict[str, Any], person: User, project: Project | None) -> Sequence:
    for name in ("threshold", "pipeline", "new"):
        if options[name]:
            where = f"sequence {options['sequence']}"
            raise BadInput(f"--{name} is for a new sequence, made from a folder.", where=where)
    sequences = Sequence.objects.visible_to(person)
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

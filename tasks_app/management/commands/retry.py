"""`cat-herder retry`: resume a task or sequence, or do a task again from one of its steps."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_task_or_sequence
from tasks_app.cli.options import add_terminal_arguments
from tasks_app.cli.sequence_session import run_sequence_locally
from tasks_app.cli.task_session import run_task_locally
from tasks_app.core.errors import BadInput, CatHerderError, IllegalMove
from tasks_app.core.phases import RESUMABLE, Phase
from tasks_app.models import Sequence, Task
from tasks_app.permissions import Principal
from tasks_app.services.bulk import retry_from
from tasks_app.services.sequences import resume_sequence
from tasks_app.services.tasks import resume_task


class Command(TerminalCommand):
    help = """\
Resumes a task or a sequence that failed, was interrupted or cancelled, or waits for a usage limit
to reset: from where it stopped, in the agent's session, with all its attempts again.

With --from STEP the task, done ones included, is done again from that step, in new sessions; what was done
stays as history. --files-before puts the files back as they were before the step.

It runs in this terminal like run_task, or with --queue in a worker of the portal."""
    examples = """\
exit codes: 0 done (or queued), 1 failed, or nothing to resume, 2 wrong usage, 3 waiting for an
answer, 130 interrupted

examples:
  cat-herder retry 12
  cat-herder retry 12 --message "The key is in the vault now. Leave the old endpoint alone."
  cat-herder retry 12 --from implement --files-before
  cat-herder retry sequence:3 --queue"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("thing", metavar="TASK|sequence:ID", help="a task's id, or PROJECT/TASK")
        parser.add_argument("--from", dest="step", metavar="STEP", help="the step to do the task again from")
        parser.add_argument(
            "--files-before", action="store_true", help="with the files as they were before that step"
        )
        parser.add_argument(
            "--message", default="", metavar="TEXT", help="what the agent reads with its next prompt"
        )
        parser.add_argument("--queue", action="store_true", help="leave the work to a worker of the portal")
        add_terminal_arguments(parser)
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        thing = find_task_or_sequence(options["thing"], principal=principal)
        if options["step"] is not None:
            thing = self._reset_to_step(thing, principal, options)
        elif options["files_before"]:
            raise BadInput("--files-before needs --from STEP", where="retry")
        elif not _can_resume(thing):
            raise _not_resumable(thing)
        else:
            self._resume(thing, principal, options)
        if options["queue"]:
            if not options["json"]:
                self.stdout.write(f"{thing}: {thing.phase_display.label}. {thing.phase_display.sentence}")
            code = Exit.DONE
        else:
            code = self._run_here(thing, principal, options)
        if options["json"]:
            self.write_outcome(thing, code)
        return code

    def _reset_to_step(self, thing: Task | Sequence, principal: Principal, options: dict[str, Any]) -> Task:
        """Make the task pending again from the step and return it."""
        if not isinstance(thing, Task):
            raise BadInput("--from needs a task; give the id of the sequence's task", where="retry")
        step = thing.steps.filter(name=options["step"]).first()
        if step is None:
            names = ", ".join(thing.steps.values_list("name", flat=True))
            raise BadInput(f"the task has no step {options['step']!r}; it has {names}", where="--from")
        retry_from(
            thing, step, by=principal,
            put_back=options["files_before"], notify=options["queue"], message=options["message"],
        )  # fmt: skip
        thing.refresh_from_db()
        return thing

    def _resume(self, thing: Task | Sequence, principal: Principal, options: dict[str, Any]) -> None:
        given = {"by": principal, "notify": options["queue"], "message": options["message"]}
        if isinstance(thing, Task):
            resume_task(thing, **given)
        else:
            resume_sequence(thing, **given)
        thing.refresh_from_db()

    def _run_here(self, thing: Task | Sequence, principal: Principal, options: dict[str, Any]) -> Exit:
        screen, may_prompt = self.screen_for(options), not options["no_input"]
        if isinstance(thing, Task):
            return run_task_locally(thing, principal, screen, may_prompt=may_prompt)
        return run_sequence_locally(thing, principal, screen, may_prompt=may_prompt)


def _can_resume(thing: Task | Sequence) -> bool:
    if isinstance(thing, Task):
        return thing.can_resume
    return thing.phase in RESUMABLE


def _not_resumable(thing: Task | Sequence) -> CatHerderError:
    if isinstance(thing, Task) and thing.phase == Phase.DONE:
        steps = ", ".join(thing.steps.values_list("name", flat=True))
        return CatHerderError(f"Task {thing.pk} is done; --from STEP does it again from a step ({steps}).")
    kind = "Task" if isinstance(thing, Task) else "Sequence"
    return IllegalMove(f"{kind} “{thing}”", thing.phase, Phase.PENDING)

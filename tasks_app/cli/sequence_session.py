"""One person at a terminal with a sequence: task after task, until one must wait, fails, or they leave."""

from __future__ import annotations

from tasks_app.cli.command import Exit
from tasks_app.cli.run_locally import introduce, say_surroundings
from tasks_app.cli.result import show_result
from tasks_app.cli.screen import Screen
from tasks_app.cli.task_session import Part, Sitting
from tasks_app.cli.tables import spent
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import ENDED, RESUMABLE, Phase
from tasks_app.history import statistics
from tasks_app.models import Sequence, Task, paths
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.sequences import current_task, go_on_sequence, sequence_files, start_sequence


def go_through(sequence: Sequence, principal: Principal, screen: Screen, *, may_prompt: bool) -> Exit:
    """Start the sequence or go on with it, and stay with it until it rests. Raises NotAllowed."""
    if sequence.phase == Phase.DONE:
        screen.say(f"Sequence {sequence.pk} is done already: {sequence.folder}")
        return Exit.DONE
    require_actor(principal, sequence.project)
    return Procession(sequence, principal, screen, may_prompt=may_prompt).run()


class Procession:
    """What comes next follows from the rows alone: a portal's worker may take a task up as well."""

    def __init__(self, sequence: Sequence, principal: Principal, screen: Screen, *, may_prompt: bool) -> None:
        self._sequence = sequence
        self._principal = principal
        self._screen = screen
        self._may_prompt = may_prompt
        self._files = sequence_files(sequence)

    def run(self) -> Exit:
        """Start the sequence or go on with it; the exit code, when it rests or the person has left."""
        self._introduce()
        self._set_going()
        first = True
        while (task := self._current()) is not None:
            self._tell_new_files()
            code, left = self._sit(task, from_start=not first)
            if code is not Exit.DONE:
                return self._stopped(code)
            if left and self._current() is not None:
                return self._left_between()
            first = False
        return self._ended()

    def _current(self) -> Task | None:
        self._sequence.refresh_from_db()
        return None if self._sequence.phase == Phase.DONE else current_task(self._sequence)

    def _introduce(self) -> None:
        sequence = self._sequence
        heading = f"Sequence {sequence.pk} · {sequence.project.name}/{sequence.slug} · {sequence.folder}"
        self._screen.say(heading, style="bold")
        self._screen.say(f"branch {sequence.branch}, {len(self._files)} task(s) so far", indent=2)
        say_surroundings(self._screen)

    def _set_going(self) -> None:
        sequence, task = self._sequence, current_task(self._sequence)
        try:
            if task is not None and task.not_started:
                start_sequence(sequence, by=self._principal, ring=False)
            elif sequence.phase in RESUMABLE:
                go_on_sequence(sequence, by=self._principal, ring=False)
        except IllegalMove:
            pass  # somebody was first; the rows tell what it is now

    def _sit(self, task: Task, *, from_start: bool) -> tuple[Exit, bool]:
        place = self._sequence.tasks.filter(pk__lte=task.pk).count()
        before = f"task {place} of {len(self._files)}, step "
        self._screen.say()
        introduce(task, self._screen)
        sitting = Sitting(
            task, self._principal, self._screen,
            may_prompt=self._may_prompt, part=Part(before, self._again, from_start),
        )  # fmt: skip
        return sitting.run(), sitting.left

    def _again(self) -> str:
        """The command that goes on with the sequence."""
        self._sequence.refresh_from_db()
        ended = " --continue" if self._sequence.phase in ENDED else ""
        return f"manage.py run_sequence {self._sequence.pk}{ended}"

    def _tell_new_files(self) -> None:
        """Tasks may add tasks: say so as soon as it is known."""
        files = sequence_files(self._sequence)
        for name in files:
            if name not in self._files:
                self._screen.say_with_mark("+", f"A new task is in the folder: {name}", style="yellow")
        self._files = files

    def _stopped(self, code: Exit) -> Exit:
        done, _ = statistics.tasks_done([self._sequence])[self._sequence.pk]
        self._sequence.refresh_from_db()
        if self._sequence.phase in ENDED:
            self._screen.say(
                f"The sequence stops here, with {done} of {len(self._files)} tasks done; "
                "once what is in the way is mended, --continue goes on."
            )
        return code

    def _left_between(self) -> Exit:
        self._screen.say("You left between two tasks; a running portal goes on without this terminal.")
        self._screen.say(f"Go on here with  {self._again()}", indent=2, wrap=False)
        return Exit.INTERRUPTED

    def _ended(self) -> Exit:
        """No task is at hand: all are done, or the folder has none that can be begun."""
        sequence, say = self._sequence, self._screen.say
        last = sequence.tasks.select_related("project").order_by("pk").last()
        say()
        if sequence.phase == Phase.FAILED:
            say(f"Failed: {sequence.failure}", style="bold red")
            if last and paths.workspace(last).path.exists():
                say(
                    f"The folder is here:  {paths.workspace(last).path / sequence.folder}",
                    indent=2,
                    wrap=False,
                )
            say(f"Mend it, then go on with  {self._again()}", indent=2, wrap=False)
            return Exit.FAILED
        say(f"Done: {sequence.folder}, {len(self._files)} task(s)", style="bold green")
        say(spent(statistics.of_sequence(sequence)), indent=2)
        if last:
            show_result(self._screen, last)
        return Exit.DONE

"""Follow a sequence in the terminal, task after task, until one waits, fails, or the person leaves."""

from __future__ import annotations

from tasks_app.cli.command import Exit
from tasks_app.cli.repository import show_result
from tasks_app.cli.tables import describe_spending
from tasks_app.cli.task_session import SequenceContext, TaskSession, introduce, warn_about_environment
from tasks_app.cli.terminal import Screen
from tasks_app.core.amounts import counted
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import ENDED, RESUMABLE, Phase
from tasks_app.models import Sequence, Task, paths
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.sequences import (
    current_task,
    resume_sequence,
    sequence_files,
    start_sequence,
    task_waiting_for_permission,
)
from tasks_app.services.usage import statistics


def run_sequence_locally(
    sequence: Sequence, principal: Principal, screen: Screen, *, may_prompt: bool, allow: str = ""
) -> Exit:
    """Start or resume the sequence and follow it until it stops. Raises NotAllowed."""
    if sequence.phase == Phase.DONE:
        screen.say(f"Sequence {sequence.pk} is already done: {sequence.folder}")
        return Exit.DONE
    require_actor(principal, sequence.project)
    return SequenceSession(sequence, principal, screen, may_prompt=may_prompt, allow=allow).run()


class SequenceSession:
    """Reads the next task from the rows each time, because a worker of the portal may take one too."""

    def __init__(
        self, sequence: Sequence, principal: Principal, screen: Screen, *, may_prompt: bool, allow: str
    ) -> None:
        self._sequence = sequence
        self._principal = principal
        self._screen = screen
        self._may_prompt = may_prompt
        self._allow = allow
        self._files = sequence_files(sequence)

    def run(self) -> Exit:
        """Run the sequence until it stops or the person leaves; return the exit code."""
        sequence = self._sequence
        heading = f"Sequence {sequence.pk} · {sequence.project.name}/{sequence.slug} · {sequence.folder}"
        self._screen.say(heading, style="bold")
        self._screen.say(f"branch {sequence.branch}, {counted(len(self._files), 'task')} so far", indent=2)
        warn_about_environment(self._screen)
        self._make_due()
        first = True
        while (task := self._current_task()) is not None:
            files = sequence_files(self._sequence)
            for name in files:
                if name not in self._files:
                    self._screen.say_with_mark("+", f"New task in the folder: {name}", style="yellow")
            self._files = files
            code, left = self._run_task(task, from_start=not first)
            if code is not Exit.DONE:
                done, _ = statistics.tasks_done([self._sequence])[self._sequence.pk]
                self._sequence.refresh_from_db()
                if self._sequence.phase in ENDED:
                    tasks = counted(len(self._files), "task")
                    self._screen.say(
                        f"The sequence stopped with {done} of {tasks} done. Fix the cause first."
                    )
                return code
            if left and self._current_task() is not None:
                self._screen.say(
                    "You left between two tasks; a running portal continues without this terminal."
                )
                self._screen.say(f"Continue with  {self._continue_command()}", indent=2, wrap=False)
                return Exit.INTERRUPTED
            first = False
        return self._print_end()

    def _current_task(self) -> Task | None:
        self._sequence.refresh_from_db()
        if self._sequence.phase == Phase.DONE:
            return None
        return current_task(self._sequence)

    def _make_due(self) -> None:
        sequence, task = self._sequence, current_task(self._sequence)
        try:
            if task is not None and task.not_started:
                start_sequence(sequence, by=self._principal, notify=False)
            elif sequence.phase in RESUMABLE:
                resume_sequence(sequence, by=self._principal, notify=False, allow=self._allow)
        except IllegalMove:
            pass  # somebody else was first; the rows have the current phase

    def _run_task(self, task: Task, *, from_start: bool) -> tuple[Exit, bool]:
        position = self._sequence.tasks.filter(pk__lte=task.pk).count()
        step_prefix = f"task {position} of {len(self._files)}, step "
        self._screen.say()
        introduce(task, self._screen)
        session = TaskSession(
            task, self._principal, self._screen,
            may_prompt=self._may_prompt,
            sequence=SequenceContext(step_prefix, self._continue_command, from_start),
        )  # fmt: skip
        return session.run(), session.left

    def _continue_command(self) -> str:
        self._sequence.refresh_from_db()
        ended = " --continue" if self._sequence.phase in ENDED else ""
        return f"cat-herder run_sequence {self._sequence.pk}{ended}"

    def _print_end(self) -> Exit:
        """Print the outcome when no task is left: all are done, or none in the folder can be started."""
        sequence, say = self._sequence, self._screen.say
        last = sequence.tasks.select_related("project").order_by("pk").last()
        say()
        if waiting := task_waiting_for_permission(sequence):
            say(waiting.why_it_waits, style="bold yellow")
            command = f"{self._continue_command()} --allow {waiting.allow_key}"
            say(f"To allow it, continue with  {command}", indent=2, wrap=False)
            return Exit.WAITING
        if sequence.phase == Phase.FAILED:
            say(f"Failed: {sequence.failure}", style="bold red")
            if last and paths.workspace(last).path.exists():
                say(
                    f"The folder is  {paths.workspace(last).path / sequence.folder}",
                    indent=2,
                    wrap=False,
                )
            say(f"Fix it, then continue with  {self._continue_command()}", indent=2, wrap=False)
            return Exit.FAILED
        say(f"Done: {sequence.folder}, {counted(len(self._files), 'task')}", style="bold green")
        say(describe_spending(statistics.of_sequence(sequence)), indent=2)
        if last:
            show_result(self._screen, last)
        return Exit.DONE

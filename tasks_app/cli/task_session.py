"""Follow one task in the terminal: print events, prompt for answers, and work on it if it is due."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from tasks_app.cli.command import Exit
from tasks_app.cli.event_printer import EventPrinter, Progress
from tasks_app.cli.local_worker import CtrlC, LocalWorker, is_this_process
from tasks_app.cli.questions import (
    Outcome,
    Prompt,
    prompt_until_answered,
    show_how_to_answer,
    show_question,
    show_question_heading,
)
from tasks_app.cli.repository import show_result
from tasks_app.cli.tables import describe_spending
from tasks_app.cli.terminal import Keyboard, Screen
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import Question, Task
from tasks_app.operations import local_sandbox
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.commands import page_url
from tasks_app.services.tasks import resume_task, start_task
from tasks_app.services.usage import statistics
from tasks_app.services.usage.cost_limits import budgets_of_task, with_limits
from tasks_app.services.wait_sentences import fault_words, reset_words

#: Seconds between two readings of the rows.
_POLL_SECONDS = 0.1

_EXIT_CODES = {
    Phase.DONE: Exit.DONE,
    Phase.FAILED: Exit.FAILED,
    Phase.CANCELLED: Exit.FAILED,
    Phase.WAITING_FOR_INPUT: Exit.WAITING,
}


@dataclass(frozen=True)
class SequenceContext:
    """The sequence around a task: a prefix for the names of steps, and the command that continues."""

    step_prefix: str
    continue_command: Callable[[], str]
    from_start: bool = False


class TaskSession:
    """Follows the task's rows only, so that it makes no difference whether this process or a worker of the
    portal works on it.

    `sequence`: given if the caller continues with further tasks and shows the result itself.
    """

    def __init__(
        self,
        task: Task,
        principal: Principal,
        screen: Screen,
        *,
        may_prompt: bool,
        sequence: SequenceContext | None = None,
    ) -> None:
        self._task = task
        self._principal = principal
        self._screen = screen
        self._may_prompt = may_prompt
        self._sequence = sequence
        self._worker = LocalWorker(task.pk, queues_next=sequence is None)
        prefix, from_start = "", False
        if sequence:
            prefix, from_start = sequence.step_prefix, sequence.from_start
        self._printer = EventPrinter(task, screen, step_prefix=prefix, from_start=from_start)
        self._progress = Progress(task, screen, self._printer)
        self._keyboard = Keyboard()
        #: What was noted last, and when that wait ends.
        self._last_note: tuple[str, datetime | None] = ("", None)
        #: When the wait for a budget ends, and whose budget is spent, in words.
        self._spent_budget: tuple[datetime | None, str] = (None, "")
        #: Whether the person pressed Ctrl+C, even if the task has ended meanwhile.
        self.left = False

    def run(self) -> Exit:
        """Follow the task until it stops or the person leaves; return the exit code."""
        with CtrlC() as ctrl_c:
            prompt = Prompt(self._screen, self._keyboard, check_interrupt=ctrl_c.check)
            try:
                self._follow(ctrl_c, prompt)
            except KeyboardInterrupt:
                self.left = True
                self._screen.say("\nStopping … (press Ctrl+C again to stop immediately)")
            finally:
                # Also after an error here: no agent may keep working unseen.
                if self.left or self._read_phase() not in _EXIT_CODES:
                    self._worker.stop()
                self._worker.wait()
                self._screen.clear_status()
            phase = self._print_news()
        self._print_outcome(phase)
        self._keyboard.discard_input()  # the shell must not run a partly typed answer as a command
        if self.left and phase not in ENDED:
            return Exit.INTERRUPTED
        return self._exit_code(phase)

    def _follow(self, ctrl_c: CtrlC, prompt: Prompt) -> None:
        while True:
            phase = self._print_news()
            if phase in ENDED or phase is Phase.INTERRUPTED:
                return
            if phase is Phase.WAITING_FOR_INPUT:
                if not self._ask(prompt):
                    return
            else:
                self._worker.start_if_due()
                self._note_state(phase)
                self._progress.refresh()
            ctrl_c.pause(_POLL_SECONDS)

    def _read_phase(self) -> Phase:
        self._task.refresh_from_db()
        return Phase(self._task.phase)

    def _print_news(self) -> Phase:
        """Print new events and return the phase, which was read first so that none is missed."""
        phase = self._read_phase()
        self._printer.print_new()
        return phase

    def _ask(self, prompt: Prompt) -> bool:
        """Show the open questions and prompt for answers; return false if nobody here will answer."""
        self._screen.clear_status()
        questions = Question.objects.open_of(self._task)
        for question in questions:
            show_question_heading(self._screen, question)
            self._printer.asked.add(question.number)
            if not self._may_prompt:
                show_question(self._screen, question)
                continue
            try:
                outcome = prompt_until_answered(question, prompt, self._screen, by=self._principal)
            except EOFError:
                self._screen.say()
                return False
            if outcome is Outcome.TOO_LATE:
                self._printer.answered.add(question.number)
        return self._may_prompt or not questions

    def _note_state(self, phase: Phase) -> None:
        task, text, until = self._task, "", None
        held = task.lease_expires is not None and task.lease_expires > timezone.now()
        if fault := fault_words(task):
            text = fault
        elif phase is Phase.WAITING_FOR_RESET and task.resets_at:
            text, until = "Usage limit reached.", task.resets_at
            if task.waits_for_budget:
                text = self._spent_budget_words()
        elif held and not is_this_process(task.lease_owner):
            text = (
                f"Another worker holds the task ({task.lease_owner}). This terminal follows it "
                "and takes over if that worker dies."
            )
        if text and (text, until) != self._last_note:
            self._last_note = text, until
            if until:
                words = reset_words(until, now=timezone.now())
                text = f"{text} {words} The task then resumes by itself."
            self._screen.say_with_mark("·", text, style="dim")

    def _spent_budget_words(self) -> str:
        """Say whose budget is spent. It takes sums over the month, so they are made once for each wait."""
        if self._spent_budget[0] != self._task.resets_at:
            words = budgets_of_task(with_limits(self._task.pk)).problem(self._principal)
            self._spent_budget = self._task.resets_at, words or "A budget was spent."
        return self._spent_budget[1]

    def _exit_code(self, phase: Phase) -> Exit:
        """Return the code of the outcome. Scripts must not take a task that was finished early for done."""
        if self._task.finished_early:
            return Exit.FAILED
        return _EXIT_CODES.get(phase, Exit.INTERRUPTED)

    def _print_outcome(self, phase: Phase) -> None:
        say, task = self._screen.say, self._task
        say()
        if task.finished_early or task.only_rehearsed:
            say(f"{task.phase_display.label.capitalize()}: {task.title}", style="bold yellow")
            say(task.phase_display.sentence, indent=2)
        elif phase is Phase.DONE:
            say(f"Done: {task.title}", style="bold green")
        elif phase in (Phase.FAILED, Phase.CANCELLED):
            last = task.transitions.filter(step=None).last()
            why = task.failure or (last.reason if last else "")
            if self._printer.last_check_failed:  # with the output that the reason repeats
                why = why.split("\n", 1)[0]
            say(f"{phase.capitalize()}: {why}", style="bold red")
        elif phase is Phase.WAITING_FOR_INPUT:
            say("The task is waiting for an answer.", style="bold yellow")
            for question in Question.objects.open_of(task):
                show_how_to_answer(self._screen, question)
        elif phase is Phase.INTERRUPTED:
            say(f"Interrupted: {task.title}", style="bold")
        else:
            say("You left; the task continues without this terminal.")
        if phase is not Phase.DONE or task.finished_early:
            command = f"cat-herder run_task {task.pk} --project {shlex.quote(task.project.name)}"
            if self._sequence:
                command = self._sequence.continue_command()
            say(f"Continue with  {command}", indent=2, wrap=False)

        if not self._sequence:
            show_result(self._screen, task, was_printed=True)
            say(f"Used     {describe_spending(statistics.of_task(task))}", indent=2)
        if phase is Phase.DONE and not self._sequence and not task.only_rehearsed:
            say(f"Next     cat-herder review {task.pk} --diff", indent=2, wrap=False)
            say(f"         cat-herder publish {task.pk}", indent=2, wrap=False)


# Run a task in this terminal, for run_task, run_sequence, retry and watch_tasks.


def run_task_locally(task: Task, principal: Principal, screen: Screen, *, may_prompt: bool) -> Exit:
    """Start or resume the task and follow it until it stops. Raises NotAllowed."""
    return run_task_session(task, principal, screen, may_prompt=may_prompt)[0]


def run_task_session(
    task: Task, principal: Principal, screen: Screen, *, may_prompt: bool
) -> tuple[Exit, bool]:
    """Start or resume the task; return the exit code and whether the person pressed Ctrl+C."""
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
    screen.say(page_url(task), indent=2, wrap=False)
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

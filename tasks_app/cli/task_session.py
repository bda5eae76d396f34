"""One person at a terminal with one task, until it ends, must wait, or they leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.utils import timezone

from tasks_app.cli.prompt import AnsweredElsewhere, Prompt
from tasks_app.cli.questions import run_again, show_place, show_question, show_ways
from tasks_app.cli.command import Exit
from tasks_app.cli.ctrl_c import CtrlC
from tasks_app.cli.local_worker import Hands, is_here
from tasks_app.cli.keyboard import Keyboard
from tasks_app.cli.event_printer import News
from tasks_app.cli.progress import Progress
from tasks_app.cli.result import show_result
from tasks_app.cli.screen import Screen
from tasks_app.core.errors import AnswerRefused, BadInput, NotOpen
from tasks_app.core.phases import ENDED, Phase
from tasks_app.engine.limits import fault_words, reset_words
from tasks_app.models import Channel, Question, QuestionKind, Task
from tasks_app.permissions import Principal
from tasks_app.services.answers import answer_question, decide

#: Between two looks at the rows while nothing is asked, in seconds.
_LOOKS_EVERY = 0.1

_CODES = {
    Phase.DONE: Exit.DONE,
    Phase.FAILED: Exit.FAILED,
    Phase.CANCELLED: Exit.FAILED,
    Phase.WAITING_FOR_INPUT: Exit.WAITING,
}


@dataclass(frozen=True)
class Part:
    """What a task is part of: what stands before the names of its steps, and the command that goes on."""

    before: str
    again: Callable[[], str]
    from_start: bool = False


class Sitting:
    """The rows are the truth here too: what is shown and when it ends follows from them alone, so that it
    makes no difference whether this process works on the task or a worker of the portal.

    `part`: given where the caller goes on with further tasks, and has the last word.
    """

    def __init__(
        self, task: Task, principal: Principal, screen: Screen, *, may_prompt: bool, part: Part | None = None
    ) -> None:
        self._task = task
        self._principal = principal
        self._screen = screen
        self._may_prompt = may_prompt
        self._part = part
        self._hands = Hands(task.pk, queues_next=part is None)
        before, from_start = (part.before, part.from_start) if part else ("", False)
        self._news = News(task, screen, before=before, from_start=from_start)
        self._progress = Progress(task, screen, self._news)
        self._keyboard = Keyboard()
        self._told = ""
        #: Whether the person has left; also after the task had come to its end meanwhile.
        self.left = False

    def run(self) -> Exit:
        """The exit code, after the task has come to rest or the person has left."""
        with CtrlC() as ctrl_c:
            prompt = Prompt(self._screen, self._keyboard, look=ctrl_c.look)
            try:
                self._follow(ctrl_c, prompt)
            except KeyboardInterrupt:
                self.left = True
                self._screen.say("\nStopping … (Ctrl+C again leaves at once)")
            finally:
                # Also when something went wrong here: no agent may be left at work behind our back.
                if self.left or self._phase() not in _CODES:
                    self._hands.stop()
                self._hands.finish()
                self._screen.fall()
            phase = self._look()
        self._farewell(phase)
        self._keyboard.forget()  # half an answer, to a question that somebody else answered, is no command
        return Exit.INTERRUPTED if self.left and phase not in ENDED else _CODES.get(phase, Exit.INTERRUPTED)

    def _follow(self, ctrl_c: CtrlC, prompt: Prompt) -> None:
        while True:
            phase = self._look()
            if phase in ENDED or phase is Phase.INTERRUPTED:
                return
            if phase is Phase.WAITING_FOR_INPUT:
                if not self._ask(prompt):
                    return
            else:
                self._hands.begin()
                self._tell_who_works(phase)
                self._progress.look()
            ctrl_c.pause(_LOOKS_EVERY)

    def _phase(self) -> Phase:
        self._task.refresh_from_db()
        return Phase(self._task.phase)

    def _look(self) -> Phase:
        """The phase, after everything that led to it was told."""
        phase = self._phase()
        self._news.look()
        return phase

    def _ask(self, prompt: Prompt) -> bool:
        """Show what is asked and take answers; false if nobody here will give one."""
        self._screen.fall()
        questions = Question.objects.open_of(self._task)
        for question in questions:
            show_place(self._screen, question)
            self._news.asked.add(question.number)
            if not self._may_prompt:
                show_question(self._screen, question)
                continue
            try:
                self._take_answer(question, prompt)
            except EOFError:
                self._screen.say()
                return False
        return self._may_prompt or not questions

    def _take_answer(self, question: Question, prompt: Prompt) -> None:
        while True:
            try:
                self._settle(question, prompt)
            except AnsweredElsewhere:
                return
            except NotOpen as late:
                self._news.answered.add(question.number)
                self._screen.say_with_mark("✗", f"Your answer came too late. {late}", style="red")
                return
            except (AnswerRefused, BadInput) as refusal:
                self._screen.say_with_mark("✗", str(refusal), style="red")
                continue
            return

    def _settle(self, question: Question, prompt: Prompt) -> None:
        if question.kind == QuestionKind.CLARIFICATION:
            answer_question(question, prompt.reply_to(question), by=self._principal, via=Channel.TERMINAL)
        else:
            verdict, notes = prompt.verdict_on(question)
            decide(question, verdict, by=self._principal, via=Channel.TERMINAL, notes=notes)

    def _tell_who_works(self, phase: Phase) -> None:
        task, text = self._task, ""
        held = task.lease_expires is not None and task.lease_expires > timezone.now()
        if fault := fault_words(task):
            text = fault
        elif phase is Phase.WAITING_FOR_RESET and task.resets_at:
            words = reset_words(task.resets_at, now=timezone.now())
            text = f"A usage limit is reached. {words} Then it goes on by itself."
        elif held and not is_here(task.lease_owner):
            text = (
                f"Another worker holds it ({task.lease_owner}); this terminal follows, "
                "and takes over should that one be gone."
            )
        if text and text != self._told:
            self._screen.say_with_mark("·", text, style="dim")
            self._told = text

    def _farewell(self, phase: Phase) -> None:
        say, task = self._screen.say, self._task
        say()
        if phase is Phase.DONE:
            say(f"Done: {task.title}", style="bold green")
        elif phase in (Phase.FAILED, Phase.CANCELLED):
            say(f"{phase.capitalize()}: {task.failure or self._last_reason()}", style="bold red")
        elif phase is Phase.WAITING_FOR_INPUT:
            say("The task waits for an answer; nothing runs meanwhile.", style="bold yellow")
            for question in Question.objects.open_of(task):
                show_ways(self._screen, question)
        elif phase is Phase.INTERRUPTED:
            say(f"Interrupted: {task.title}", style="bold")
        else:
            say("You left; the task goes on without this terminal.")
        if phase is not Phase.DONE:
            again = self._part.again() if self._part else run_again(task.pk, project=task.project.name)
            say(f"Go on here with  {again}", indent=2, wrap=False)
        if not self._part:
            show_result(self._screen, task)

    def _last_reason(self) -> str:
        last = self._task.transitions.filter(step=None).last()
        return last.reason if last else ""

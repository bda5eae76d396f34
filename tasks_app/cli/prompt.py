"""Read the answer to a question at the prompt, while somebody may answer it in the browser (H6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tasks_app.cli.choices import amount_with_sign, resolve_choice
from tasks_app.cli.decision_options import answer_and_scope, remember_hint
from tasks_app.cli.keyboard import Keyboard
from tasks_app.cli.questions import (
    amount_hint,
    answer_hint,
    decision_hint,
    show_concerned,
    show_earlier,
    show_item,
    show_question,
    take_hint,
    taken_number,
)
from tasks_app.cli.screen import Screen
from tasks_app.models import VERDICTS, Question, Verdict
from tasks_app.services.answers import Reply
from tasks_app.services.decisions.answering import (
    Concerned,
    ForDecisions,
    Remember,
    Stance,
    StanceOn,
    decisions_concerning,
)
from tasks_app.services.earlier_answers import nearest

#: Seconds between two checks whether the question is still open.
_POLL_SECONDS = 0.2


class AnsweredElsewhere(Exception):
    """The question was closed while the prompt was open."""


class Prompt:
    """Calls `check_interrupt`, which may raise, several times a second while nobody types."""

    def __init__(self, screen: Screen, keyboard: Keyboard, *, check_interrupt: Callable[[], None]) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._check_interrupt = check_interrupt

    def reply_to(self, question: Question) -> Reply:
        """Read one answer for each item. Raises AnsweredElsewhere, EOFError, or what the check raises."""
        answers: dict[str, str] = {}
        remember, taken, earlier = Remember(), None, nearest(question)
        concerned = [] if question.is_about_cost else decisions_concerning(question)
        show_concerned(self._screen, concerned)
        for position, item in enumerate(question.items, start=1):
            if str(item["question"]) in answers:  # of the earlier answer
                continue
            show_item(self._screen, item)
            if earlier and not answers:
                show_earlier(self._screen, earlier)
                self._screen.say(take_hint(len(earlier)), indent=2, style="dim")
            if not question.is_about_cost:
                self._screen.say(remember_hint(), indent=2, style="dim")
            hint = amount_hint() if question.is_about_cost else answer_hint(item)
            self._screen.say(hint, indent=2, style="dim")
            prompt = "> " if len(question.items) == 1 else f"{position} of {len(question.items)} > "
            text = self._read_answer(question, item, prompt)
            if not question.is_about_cost:
                text, remember = answer_and_scope(text, remember)
            if not answers and (number := taken_number(text, item, len(earlier))):
                taken = earlier[number - 1]
                answers.update(taken.answers)
                if str(item["question"]) in answers:
                    continue
                text = self._read_answer(question, item, prompt)
            typed = resolve_choice(item, text)
            answers[str(item["question"])] = typed if not question.is_about_cost else amount_with_sign(typed)
        stances = {one.decision.number: self._stance_on(one, question, answers) for one in concerned}
        given = ForDecisions(remember, {number: said for number, said in stances.items() if said})
        return Reply(answers, taken_from=taken.question.pk if taken else None, for_decisions=given)

    def _stance_on(
        self, concerned: Concerned, question: Question, answers: Mapping[str, str]
    ) -> StanceOn | None:
        """Read what the answer means for a decision; None if it agrees, or says nothing about it.

        An answer that contradicts must say what holds.
        """
        agrees, decision = concerned.agrees(answers), concerned.decision
        if agrees:
            return None
        label = decision.label
        choices = (
            f"1: your answer holds instead, 2: an exception, or the paths for which {label} still holds."
        )
        if agrees is False:
            self._screen.say(f"Your answer contradicts {label}: {decision.statement}", indent=2, style="bold")
            self._screen.say(f"Type {choices}", indent=2, style="dim")
            return self._stance(self._read_answer(question, {}, "> "))
        self._screen.say(
            f"What does it mean for {label}? Nothing: press Enter. Else type", indent=2, style="dim"
        )
        self._screen.say(f"{choices} 3: {label} is right.", indent=2, style="dim")
        self._screen.prompt("> ")
        try:
            typed = self._read_lines(question)
        except EOFError:  # a pipe without a line for it: the answer is there
            return None
        return StanceOn(Stance.AGREE) if typed.strip() == "3" else self._stance(typed)

    @staticmethod
    def _stance(typed: str) -> StanceOn | None:
        said = typed.strip()
        if said in ("1", "2"):
            return StanceOn(Stance.SUPERSEDE if said == "1" else Stance.EXCEPTION)
        return StanceOn(Stance.NARROW, re.split(r"[,\s]+", said)) if said else None

    def verdict_on(self, question: Question) -> tuple[Verdict, str]:
        """Read a verdict, and the reason if it needs one. Raises the same as `reply_to`."""
        show_question(self._screen, question)
        self._screen.say(decision_hint(question), indent=2, style="dim")
        approve, refuse = VERDICTS[question.kind]
        options = [str(option["label"]) for option in question.items[0]["options"]]
        while (
            typed := resolve_choice(question.items[0], self._read_answer(question, question.items[0], "> "))
        ) not in options:
            self._screen.say(decision_hint(question), indent=2)
        if typed == options[0]:
            return approve, ""
        reason = "Reason" if refuse == Verdict.DENIED else "What should change"
        self._screen.say(f"{reason} (required; sent to the agent):", indent=2, style="dim")
        return refuse, self._read_answer(question, {}, "> ")

    def _read_answer(self, question: Question, item: Mapping[str, Any], prompt: str) -> str:
        self._keyboard.discard_input()
        while True:
            self._screen.prompt(prompt)
            typed = self._read_lines(question)
            if typed.strip():
                return typed
            self._screen.say(f"The answer is empty. {answer_hint(item)}", indent=2)

    def _read_lines(self, question: Question) -> str:
        """Read one line, or after a paste all lines up to an empty line that was typed."""
        lines = [self._read_line(question)]
        if not self._keyboard.is_terminal:  # a terminal has already shown the input
            self._screen.say(lines[0])
        while self._keyboard.has_pasted_line():
            lines.append(self._read_line(question))
        if len(lines) == 1:
            return lines[0]
        self._screen.say("Several lines pasted. Type more, or end with an empty line.", indent=2, style="dim")
        while (line := self._read_line(question)) or self._keyboard.has_pasted_line():
            lines.append(line)
        return "\n".join(lines).rstrip()

    def _read_line(self, question: Question) -> str:
        while (line := self._keyboard.read_line(_POLL_SECONDS)) is None:
            self._check_interrupt()
            if not Question.objects.open().filter(pk=question.pk).exists():
                self._screen.say()  # ends the line of the prompt
                raise AnsweredElsewhere
        return line

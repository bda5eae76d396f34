"""Read the answer to a question at the prompt, while somebody may answer it in the browser (H6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks_app.cli.choices import amount_with_sign, resolve_choice
from tasks_app.cli.decision_options import marked, remember_hint
from tasks_app.cli.decision_prompt import DecisionPrompt
from tasks_app.cli.keyboard import Keyboard
from tasks_app.cli.questions import (
    amount_hint,
    answer_hint,
    decision_hint,
    earlier_to,
    show_earlier,
    show_item,
    show_question,
    show_related_decisions,
    take_hint,
    takes_earlier,
)
from tasks_app.cli.screen import Screen
from tasks_app.models import VERDICTS, Question, Verdict
from tasks_app.services.decisions.answering import Remember
from tasks_app.services.decisions.citing import related_decisions
from tasks_app.services.questions.answers import Reply
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers

#: Seconds between two checks whether the question is still open.
_POLL_SECONDS = 0.2


class AnsweredElsewhere(Exception):
    """The question was closed while the prompt was open."""


@dataclass(frozen=True)
class _Given:
    """The answer to an item, how far it holds if that was said, and the earlier answer that it is."""

    answer: str
    remember: Remember | None = None
    taken: EarlierAnswer | None = None


class Prompt:
    """Calls `check_interrupt`, which may raise, several times a second while nobody types."""

    def __init__(self, screen: Screen, keyboard: Keyboard, *, check_interrupt: Callable[[], None]) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._check_interrupt = check_interrupt

    def reply_to(self, question: Question) -> Reply:
        """Read one answer for each item. Raises AnsweredElsewhere, EOFError, or what the check raises."""
        answers: dict[str, str] = {}
        if question.is_about_cost:
            (item,) = question.items
            show_item(self._screen, item)
            text = self._ask(question, item, amount_hint())
            return Reply.to(question, amount_with_sign(resolve_choice(item, text)))
        remembered: dict[str, Remember] = {}
        taken, earlier, related = None, find_similar_answers(question), related_decisions(question)
        show_related_decisions(self._screen, related)
        for item in question.items:
            given = self._answer_to(question, item, earlier_to(item, earlier))
            answers[str(item["question"])] = given.answer
            taken = given.taken or taken
            if given.remember:
                remembered[str(item["question"])] = given.remember
        decisions = self._decisions(question).read_all(question, related, answers, remembered)
        return Reply(answers, taken_from=taken.question.pk if taken else None, decision_input=decisions)

    def _answer_to(
        self, question: Question, item: Mapping[str, Any], earlier: Sequence[EarlierAnswer]
    ) -> _Given:
        """Read the answer to an item, which may end with how far it holds."""
        show_item(self._screen, item)
        if earlier:
            show_earlier(self._screen, earlier)
        same = next((one for one in earlier if one.same), None)
        if same:
            self._screen.say(take_hint(), indent=2, style="dim")
        text = self._ask(question, item, remember_hint(), answer_hint(item))
        mark = marked(text)
        used = same if takes_earlier(mark.answer if mark else text, item) else None
        if mark and not used and not self._decisions(question).is_meant(mark, item):
            mark = None
        remember = mark.remember if mark else None
        if used:
            return _Given(used.answers[str(item["question"])], remember, used)
        return _Given(resolve_choice(item, mark.answer if mark else text), remember)

    def _ask(self, question: Question, item: Mapping[str, Any], *hints: str) -> str:
        for hint in hints:
            self._screen.say(hint, indent=2, style="dim")
        several = len(question.items) > 1
        position = 1 + [*map(id, question.items)].index(id(item))
        return self._read_answer(
            question, item, f"{position} of {len(question.items)} > " if several else "> "
        )

    def _decisions(self, question: Question) -> DecisionPrompt:
        def read() -> str:
            self._screen.prompt("> ")
            return self._read_lines(question)

        return DecisionPrompt(self._screen, read)

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

"""Reading the answer to a question at the prompt, while the web may answer it at any time (H6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tasks_app.cli.questions import how_to_choose, how_to_decide, show_item, show_question
from tasks_app.cli.choices import chosen
from tasks_app.cli.keyboard import Keyboard
from tasks_app.cli.screen import Screen
from tasks_app.models import VERDICTS, Question, Verdict
from tasks_app.services.answers import Reply

#: Between two looks at the rows, in seconds.
_LOOKS_EVERY = 0.2


class AnsweredElsewhere(Exception):
    """The question was closed while the prompt stood open."""


class Prompt:
    """`look` is called several times a second while nobody types, and may end the prompt by raising."""

    def __init__(self, screen: Screen, keyboard: Keyboard, *, look: Callable[[], None]) -> None:
        self._screen = screen
        self._keyboard = keyboard
        self._look = look

    def reply_to(self, question: Question) -> Reply:
        """One answer for each item, in turn. Raises AnsweredElsewhere, EOFError, or what `look` raises."""
        answers = {}
        for place, item in enumerate(question.items, start=1):
            show_item(self._screen, item)
            self._screen.say(how_to_choose(item), indent=2, style="dim")
            mark = "> " if len(question.items) == 1 else f"{place} of {len(question.items)} > "
            answers[str(item["question"])] = chosen(item, self._typed(question, item, mark))
        return Reply(answers)

    def verdict_on(self, question: Question) -> tuple[Verdict, str]:
        """What was decided, and the reason where it wants one. Raises as `reply_to` does."""
        show_question(self._screen, question)
        self._screen.say(how_to_decide(question), indent=2, style="dim")
        approve, refuse = VERDICTS[question.kind]
        options = [str(option["label"]) for option in question.items[0]["options"]]
        while (
            typed := chosen(question.items[0], self._typed(question, question.items[0], "> "))
        ) not in options:
            self._screen.say(how_to_decide(question), indent=2)
        if typed == options[0]:
            return approve, ""
        why = (
            "Why? The agent is told." if refuse == Verdict.DENIED else "What is to change? The agent is told."
        )
        self._screen.say(why, indent=2, style="dim")
        return refuse, self._typed(question, {}, "> ")

    def _typed(self, question: Question, item: Mapping[str, Any], mark: str) -> str:
        self._keyboard.forget()
        while True:
            self._screen.prompt(mark)
            typed = self._text(question)
            if typed.strip():
                return typed
            self._screen.say(f"An answer needs some text. {how_to_choose(item)}", indent=2)

    def _text(self, question: Question) -> str:
        """One line; or all the lines of something pasted, up to an empty line that was typed."""
        lines = [self._line(question)]
        if not self._keyboard.is_terminal:  # which would have shown what was typed
            self._screen.say(lines[0])
        while self._keyboard.pasted():
            lines.append(self._line(question))
        if len(lines) == 1:
            return lines[0]
        self._screen.say("Several lines: go on, or end with an empty one.", indent=2, style="dim")
        while (line := self._line(question)) or self._keyboard.pasted():
            lines.append(line)
        return "\n".join(lines).rstrip()

    def _line(self, question: Question) -> str:
        while (line := self._keyboard.line(_LOOKS_EVERY)) is None:
            self._look()
            if not Question.objects.open().filter(pk=question.pk).exists():
                self._screen.say()  # ends the line of the prompt
                raise AnsweredElsewhere
        return line

"""Read the answer to a question at the prompt, while somebody may answer it in the browser (H6)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from tasks_app.cli.terminal import Keyboard, Screen, amount_with_sign, resolve_choice, typed_answer
from tasks_app.core.asked_items import parts_of_question
from tasks_app.models import VERDICTS, Question, QuestionKind, Verdict
from tasks_app.services.commands import answer_command, question_url
from tasks_app.services.decisions.citing import RelatedDecision, related_decisions
from tasks_app.services.questions.answers import Reply
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers

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
        if question.is_about_cost:
            (item,) = question.items
            show_item(self._screen, item)
            text = self._ask(question, item, amount_hint())
            return Reply.to(question, amount_with_sign(resolve_choice(item, text)))
        taken, earlier = None, find_similar_answers(question)
        show_related_decisions(self._screen, related_decisions(question))
        for item in question.items:
            text, used = self._answer_to(question, item, earlier_to(item, earlier))
            answers[str(item["question"])] = text
            taken = used or taken
        return Reply(answers, taken_from=taken.question.pk if taken else None)

    def _answer_to(
        self, question: Question, item: Mapping[str, Any], earlier: Sequence[EarlierAnswer]
    ) -> tuple[str, EarlierAnswer | None]:
        """Read the answer to an item. Return it, and the earlier answer if that was chosen."""
        show_item(self._screen, item)
        show_earlier(self._screen, earlier)
        same = next((one for one in earlier if one.same), None)
        if same:
            self._screen.say(take_hint(), indent=2, style="dim")
        text = self._ask(question, item, answer_hint(item))
        if same and takes_earlier(text, item):
            return same.answers[str(item["question"])], same
        return typed_answer(item, text), None

    def _ask(self, question: Question, item: Mapping[str, Any], hint: str) -> str:
        self._screen.say(hint, indent=2, style="dim")
        count = len(question.items)
        position = 1 + [*map(id, question.items)].index(id(item))
        return self._read_answer(question, item, f"{position} of {count} > " if count > 1 else "> ")

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


# Show a question in the terminal, and say where else it can be answered.


#: What is typed to take an earlier answer, as the key on the card in the browser.
TAKE_KEY = "r"


def show_question_heading(screen: Screen, question: Question) -> None:
    """Print the question's id, project, task and step."""
    task = question.task
    screen.say()
    place = f"{task.project.name} › {task.title} › {question.step.name}"
    screen.say(f"{question.kind_name} {question.pk} · {place}{_timing_suffix(question)}", style="bold yellow")


def _timing_suffix(question: Question) -> str:
    if question.step.is_clarifying:
        return " · before work"
    return " · late, about the goal" if question.is_late else ""


def show_question(screen: Screen, question: Question) -> None:
    """Print the evidence and the items of a question."""
    show_evidence(screen, question)
    if question.takes_answer:
        earlier = find_similar_answers(question)
        for item in question.items:
            show_item(screen, item)
            show_earlier(screen, earlier_to(item, earlier))
        show_related_decisions(screen, related_decisions(question))
    else:
        show_item(screen, {**question.items[0], "question": question.headline_by_evidence})


def show_evidence(screen: Screen, question: Question) -> None:
    """Print the command, file, diff or plan that is to be approved, and the comments that a plan answers."""
    if earlier := question.revises:
        screen.say(f"{earlier.answerer} sent back plan {earlier.pk}:", indent=2, style="dim")
        screen.say(earlier.notes, indent=4)
    for piece in question.evidence:
        screen.say(piece["title"], indent=2, style="dim")
        for line in piece["text"].strip("\n").split("\n"):
            screen.say(f"│ {line}", indent=2, wrap=False)


def show_item(screen: Screen, item: Mapping[str, Any]) -> None:
    """Print one item with its numbered options, their descriptions and previews."""
    header = f"[{item['header']}] " if item.get("header") else ""
    show_text(screen, header, str(item["question"]), indent=2, style="bold")
    for number, option in enumerate(item.get("options") or (), start=1):
        screen.say(f"{number}  {option['label']}", indent=4)
        if option.get("description"):
            screen.say(str(option["description"]), indent=7, style="dim")
        for line in str(option.get("preview") or "").strip("\n").split("\n"):
            if line or option.get("preview"):
                screen.say(f"│ {line}", indent=7, wrap=False)


def show_text(screen: Screen, header: str, text: str, *, indent: int, style: str) -> None:
    """Print a question as it was written, with the sentences that ask in this style."""
    parts = parts_of_question(text)
    if parts.before:
        screen.say(f"{header}{parts.before}", indent=indent)
    screen.say(parts.asked if parts.before else f"{header}{parts.asked}", indent=indent, style=style)
    if parts.after:
        screen.say(parts.after, indent=indent)


def earlier_to(item: Mapping[str, Any], earlier: Sequence[EarlierAnswer]) -> list[EarlierAnswer]:
    """Return the earlier answers to one of the items."""
    return [one for one in earlier if str(item["question"]) in one.answers]


def show_related_decisions(screen: Screen, related: Sequence[RelatedDecision]) -> None:
    """Print the decisions that the question concerns: who decided what, for where, and what is in doubt."""
    for one in related:
        decision = one.decision
        who = decision.decided_by.shown_name if decision.decided_by else "nobody yet"
        said = "The agent names" if one.named else "Decided before"
        screen.say(f"{said} {decision.label} ({who}; {decision.scope_in_words})", indent=2)
        screen.say(decision.statement, indent=4, style="bold")
        if decision.asked and not one.same:
            screen.say(f"Question: {decision.asked}", indent=4, style="dim")
        if not one.must_be_judged:
            screen.say("It does not hold here, as far as the portal can tell.", indent=4, style="dim")
        if decision.why_review:
            screen.say(f"To be reviewed: {decision.why_review}", indent=4, style="dim")


def show_earlier(screen: Screen, earlier: Sequence[EarlierAnswer]) -> None:
    """Print the earlier answers to an item: who, when, where and what differs."""
    for one in earlier:
        other = one.question
        at = timezone.localtime(other.answered_at)
        who = other.answered_by.shown_name if other.answered_by else "somebody"
        place = f"task {other.task.title}, step {other.step.name}"
        said = "Asked before" if one.same else "Similar question"
        screen.say(f"{said}: {who}, {at:%Y-%m-%d %H:%M}, {place}", indent=2)
        if not one.same:
            screen.say(one.headline, indent=4, style="dim")
        screen.say(one.text, indent=4, style="bold")
        screen.say(_likeness(one), indent=4, style="dim")


def _likeness(one: EarlierAnswer) -> str:
    said = "The same question" if one.same else "A similar question"
    if one.differences:
        said += f"; differs: {'; '.join(one.differences)}"
    times = f" Answered {one.times} times." if one.times > 1 else ""
    return f"{said}.{times}" + (f" Used {one.taken} time{'s' * (one.taken != 1)}." if one.taken else "")


def take_hint() -> str:
    return f"Type {TAKE_KEY} to give the same answer as before."


def takes_earlier(typed: str, item: Mapping[str, Any]) -> bool:
    """Return whether the earlier answer was chosen, and no answer typed: an option may have the same name."""
    labels = {str(option["label"]).casefold() for option in item.get("options") or ()}
    return typed.strip() == TAKE_KEY and TAKE_KEY not in labels


def decision_hint(question: Question) -> str:
    other = "deny" if question.kind == QuestionKind.APPROVAL else "send back"
    return f"Type 1 to approve, 2 to {other}."


def amount_hint() -> str:
    return "Type the number of an option, or an amount of dollars with its sign, such as $2.50."


def answer_hint(item: Mapping[str, Any]) -> str:
    if not item.get("options"):
        return "Type your answer."
    if item.get("multiSelect"):
        return "Type one or more numbers, separated by commas, or your own answer."
    return "Type a number, or your own answer."


def show_how_to_answer(screen: Screen, question: Question) -> None:
    screen.say(f"Answer with        {answer_command(question)}", indent=2, wrap=False)
    screen.say(f"or in the browser  {question_url(question)}", indent=2, wrap=False)


def show_how_to_judge(screen: Screen, question: Question) -> None:
    """Say how to answer and say at once what the answer means for a decision; the prompt does not ask it."""
    command = f"{answer_command(question)} --decision D-N=supersede"
    screen.say(f"Say it with         {command}  (or exception, narrow:PATHS, …)", indent=2, wrap=False)
    screen.say(f"or in the browser   {question_url(question)}", indent=2, wrap=False)


def run_task_command(task_id: int, *, project: str) -> str:
    return f"manage.py run_task {task_id} --project {shlex.quote(project)}"

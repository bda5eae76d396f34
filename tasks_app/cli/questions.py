"""Answer a question at the prompt, while somebody may answer it in the browser (H6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from tasks_app.cli.options import stance_option
from tasks_app.cli.terminal import Keyboard, Screen, amount_with_sign, resolve_choice, typed_answer
from tasks_app.core.amounts import counted, moment_in_words
from tasks_app.core.asked_items import parts_of_question
from tasks_app.core.errors import AnswerRefused, BadInput, NotOpen
from tasks_app.models import VERDICTS, Channel, Question, QuestionKind, Verdict, next_rung
from tasks_app.permissions import Principal
from tasks_app.services.commands import answer_command, question_url
from tasks_app.services.decisions.answering import DecisionInput
from tasks_app.services.decisions.citing import RelatedDecision, related_decisions
from tasks_app.services.questions.answers import Reply, answer_question, decide
from tasks_app.services.questions.approvals import changed_since
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers

#: Seconds between two checks whether the question is still open.
_POLL_SECONDS = 0.2
#: What says, at the prompt and as an option of `answer`, what becomes of a decision.
STANCE_HINT = (
    "Say what becomes of each decision: D-N=replace, D-N=exception, D-N=limit:PATHS, D-N=agree or "
    "D-N=unaffected."
)


class AnsweredElsewhere(Exception):
    """The question was closed while the prompt was open."""


class Skipped(Exception):
    """An empty line was typed where that leaves the question open."""


class Prompt:
    """Calls `check_interrupt`, which may raise, several times a second while nobody types.

    `may_skip`: an empty line raises Skipped.
    """

    def __init__(
        self,
        screen: Screen,
        keyboard: Keyboard,
        *,
        check_interrupt: Callable[[], None],
        may_skip: bool = False,
    ) -> None:
        self._may_skip = may_skip
        self._screen = screen
        self._keyboard = keyboard
        self._check_interrupt = check_interrupt

    def reply_to(self, question: Question) -> Reply:
        """Read one answer for each item. Raises AnsweredElsewhere, EOFError, or what the check raises."""
        answers: dict[str, str] = {}
        if question.is_about_cost:
            (item,) = question.items
            show_item(self._screen, item)
            hint = "Type the number of an option, or an amount of dollars with its sign, such as $2.50."
            text = self._ask(question, item, hint)
            return Reply.to(question, amount_with_sign(resolve_choice(item, text)))
        taken_from, earlier = None, find_similar_answers(question)
        show_related_decisions(self._screen, related_decisions(question))
        for item in question.items:
            text, used = self._answer_to(question, item, earlier_to(item, earlier))
            answers[str(item["question"])] = text
            if used:
                taken_from = used.question.pk
        return Reply(answers, taken_from=taken_from)

    def with_stances(self, question: Question, reply: Reply) -> Reply | None:
        """Read what the answer means for the decisions that it concerns; None to answer anew."""
        self._screen.say(f"{STANCE_HINT} An empty line lets you answer anew.", indent=2, style="dim")
        while True:
            self._screen.prompt("> ")
            typed = self._read_lines(question).replace("--decision", " ").split()
            try:
                given = DecisionInput(stances=dict(map(stance_option, typed)))
            except BadInput as error:
                self._screen.say(error.message, indent=2)
                continue
            return replace(reply, decision_input=given) if typed else None

    def _answer_to(
        self, question: Question, item: Mapping[str, Any], earlier: Sequence[EarlierAnswer]
    ) -> tuple[str, EarlierAnswer | None]:
        """Read the answer to an item. Return it, and the earlier answer if that was chosen."""
        show_item(self._screen, item)
        show_earlier(self._screen, earlier)
        same = next((one for one in earlier if one.same), None)
        if same:
            hint = f"Type {TAKE_KEY} to give the same answer as before."
            self._screen.say(hint, indent=2, style="dim")
        text = self._ask(question, item, answer_hint(item))
        # An option may have the same name as the key.
        labels = {str(option["label"]).casefold() for option in item.get("options") or ()}
        if same and text.strip() == TAKE_KEY and TAKE_KEY not in labels:
            return same.answers[str(item["question"])], same
        return typed_answer(item, text), None

    def _ask(self, question: Question, item: Mapping[str, Any], hint: str) -> str:
        self._screen.say(hint, indent=2, style="dim")
        prompt = "> "
        if len(question.items) > 1:
            position = 1 + [*map(id, question.items)].index(id(item))
            prompt = f"{position} of {len(question.items)} > "
        return self._read_answer(question, item, prompt)

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
            if self._may_skip:
                raise Skipped
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
    heading = (
        f"{question.kind_name} {question.pk} · {task.project.name} › {task.title} › {question.step.name}"
    )
    if question.step.is_clarifying:
        heading += " · before work"
    elif question.is_late:
        heading += " · late, about the goal"
    screen.say(heading, style="bold yellow")
    show_asked(screen, question)


def show_asked(screen: Screen, question: Question) -> None:
    """Print whom the question is put to and why, unless all who may answer are, and the next rung."""
    for one in question.asked_now:
        screen.say(f"asked of {one.user.shown_name}: {one.why}", indent=2, style="dim")
        if one.note:
            screen.say(one.note, indent=4)
    if rung := next_rung(question):
        until = f"{rung.announcement} {moment_in_words(rung.due)}"
        screen.say(f"if nobody answers: {until}", indent=2, style="dim")


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
        decided = f"{earlier.answerer} {earlier.outcome.lower()} plan {earlier.pk}"
        screen.say(f"{decided}:" if earlier.notes else f"{decided}.", indent=2, style="dim")
        if earlier.notes:
            screen.say(earlier.notes, indent=4)
        _show_changes(screen, earlier, question)
    for piece in question.evidence:
        screen.say(piece["title"], indent=2, style="dim")
        for line in piece["text"].strip("\n").split("\n"):
            screen.say(f"│ {line}", indent=2, wrap=False)


def _show_changes(screen: Screen, earlier: Question, question: Question) -> None:
    changed = changed_since(earlier, question)
    if not changed:
        return
    if earlier.verdict == Verdict.APPROVED:
        screen.say("The agent has changed the plan since.", indent=2)
    screen.say(f"Changed since plan {earlier.pk}", indent=2, style="dim")
    for line in changed:
        screen.say(f"│ {line}", indent=2, wrap=False)


def show_item(screen: Screen, item: Mapping[str, Any]) -> None:
    """Print one item with its numbered options, their descriptions and previews."""
    header = ""
    if item.get("header"):
        header = f"[{item['header']}] "
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
        header = ""
    screen.say(f"{header}{parts.asked}", indent=indent, style=style)
    if parts.after:
        screen.say(parts.after, indent=indent)


def earlier_to(item: Mapping[str, Any], earlier: Sequence[EarlierAnswer]) -> list[EarlierAnswer]:
    return [one for one in earlier if str(item["question"]) in one.answers]


def show_related_decisions(screen: Screen, related: Sequence[RelatedDecision]) -> None:
    """Print the decisions that the question concerns: who decided what, for where, and what is in doubt."""
    for one in related:
        decision = one.decision
        who = decision.decided_by.shown_name if decision.decided_by else "nobody yet"
        said = "The agent names" if one.named else "Decided before"
        screen.say(f"{said} {decision.label} ({who}; {decision.scope_in_words})", indent=2)
        screen.say(decision.statement, indent=4, style="bold")
        if decision.exceptions_in_words:
            screen.say(f"Except: {decision.exceptions_in_words}", indent=4, style="dim")
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
        who = other.answered_by.shown_name if other.answered_by else "somebody"
        place = f"task {other.task.title}, step {other.step.name}"
        at = moment_in_words(other.answered_at) if other.answered_at else ""
        said, likeness = "Similar question", "A similar question"
        if one.same:
            said, likeness = "Asked before", "The same question"
        screen.say(f"{said}: {who}, {at}, {place}", indent=2)
        if not one.same:
            screen.say(one.headline, indent=4, style="dim")
        screen.say(one.text, indent=4, style="bold")
        if one.differences:
            likeness += f"; differs: {'; '.join(one.differences)}"
        likeness += "."
        if one.times > 1:
            likeness += f" Answered {one.times} times."
        if one.taken:
            likeness += f" Used {counted(one.taken, 'time')}."
        screen.say(likeness, indent=4, style="dim")


def decision_hint(question: Question) -> str:
    other = "deny" if question.kind == QuestionKind.APPROVAL else "send back"
    return f"Type 1 to approve, 2 to {other}."


def answer_hint(item: Mapping[str, Any]) -> str:
    if not item.get("options"):
        return "Type your answer."
    if item.get("multiSelect"):
        return "Type one or more numbers, separated by commas, or your own answer."
    return "Type a number, or your own answer."


def show_how_to_answer(screen: Screen, question: Question) -> None:
    screen.say(f"Answer with        {answer_command(question)}", indent=2, wrap=False)
    screen.say(f"or in the browser  {question_url(question)}", indent=2, wrap=False)


class Outcome(Enum):
    ANSWERED = "answered here"
    ELSEWHERE = "answered elsewhere while the prompt was open"
    TOO_LATE = "answered elsewhere; the person was told so"


def prompt_until_answered(question: Question, prompt: Prompt, screen: Screen, *, by: Principal) -> Outcome:
    """Raises EOFError at the end of the input, and what the prompt raises."""
    reply: Reply | None = None  # refused because it says nothing of a decision
    while True:
        try:
            if not question.takes_answer:
                verdict, notes = prompt.verdict_on(question)
                decide(question, verdict, by=by, via=Channel.TERMINAL, notes=notes)
                return Outcome.ANSWERED
            reply = prompt.with_stances(question, reply) if reply else None
            reply = reply or prompt.reply_to(question)
            answer_question(question, reply, by=by, via=Channel.TERMINAL)
            return Outcome.ANSWERED
        except AnsweredElsewhere:
            return Outcome.ELSEWHERE
        except NotOpen as late:
            screen.say_with_mark("✗", f"Your answer came too late. {late}", style="red")
            return Outcome.TOO_LATE
        except AnswerRefused as refusal:
            screen.say_with_mark("✗", str(refusal), style="red")
            reply = None
        except BadInput as error:  # its field has no name at a prompt
            screen.say_with_mark("✗", error.message, style="red")
            if not error.where.startswith("decisions"):
                reply = None

"""What a person is asked in a form of their program, and what becomes of their reply (A2, A6).

The reply is the person's own word: programs that announce forms show them to people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import mcp_types as types

from tasks_app import permissions
from tasks_app.core.asked_items import SHELL_FOLDER, Item, title_of
from tasks_app.core.errors import BadInput
from tasks_app.core.text import visible
from tasks_app.mcp_server.application import Caller
from tasks_app.mcp_server.operations import Failed, Operation, run
from tasks_app.models import (
    VERDICTS,
    AnswerDraft,
    Channel,
    Question,
    QuestionKind,
    ReviewVerdict,
    Task,
    Verdict,
)
from tasks_app.schemas.questions import Answered as AnsweredOut
from tasks_app.schemas.questions import QuestionOut
from tasks_app.services.commands import page_url, question_url
from tasks_app.services.decisions.answering import DecisionInput, Stance, StanceChoice
from tasks_app.services.decisions.citing import related_decisions
from tasks_app.services.questions.answers import Reply, decide
from tasks_app.services.questions.drafts import answer_items, drafts_of, require_open, take_reply
from tasks_app.services.questions.question_outcomes import Answered

#: Characters of a message. People read it in a terminal.
LONGEST_MESSAGE = 8_000
#: Characters of the first line that programs are sure to show.
_SHOWN = 200
_LONGEST_TITLE = 200
#: Claude Code (2.1.329) shows 16 forms of a task and ignores all others without a word. So after these items
#: each card is one form. A name cannot be used again for another form: that is against SEP-2663, and Claude
#: Code shows such a form only to who opens it.
_MOST_SINGLE_ITEMS = 8
#: Statuses of problems that the user can put right in another form.
_NOT_USABLE = (400, 409, 413)
_DECISION = re.compile(r"decision_(\d{1,9})")
#: The titles of what a command does besides, beside what explains it (`agent/approvals.py`).
_PARTS_OF_COMMAND = ("Options", SHELL_FOLDER)
_NOTES = {"type": "string", "title": "Notes for the agent"}
_STANCES: dict[str, str] = {
    Stance.AGREE: "it is right",
    Stance.SUPERSEDE: "this answer replaces it",
    Stance.EXCEPTION: "it holds, but not here",
    Stance.UNAFFECTED: "this answer neither contradicts nor confirms it",
}


class Form(Protocol):
    """A form, and what a reply does. `key` names it in messages; it is never used again."""

    @property
    def key(self) -> str: ...

    @property
    def url(self) -> str: ...

    def request(self) -> types.ElicitRequest: ...

    def store(self, caller: Caller, content: Mapping[str, Any]) -> Any:
        """Act on the reply, and return what the API would; None if there is more to ask. Raises Failed."""


@dataclass(frozen=True)
class QuestionForm:
    """The next item of a card that its user has not replied to, or a decision.

    The draft keeps each reply, and the last one answers the card. All items at once would lose replies:
    Claude Code (2.1.329) shows the forms of a task one after the other, keeps what was replied in its memory
    alone, and sends nothing before the last one is closed.
    """

    question: Question
    draft: AnswerDraft

    @classmethod
    def of(cls, caller: Caller, *questions: Question) -> list[QuestionForm]:
        drafts = drafts_of(questions, caller.principal.user)
        return [cls(question, drafts[question.pk]) for question in questions]

    @property
    def key(self) -> str:
        """Return another name after each reply: no name may be used twice, and programs show none twice."""
        return f"question-{self.question.pk}-{self.draft.replies}"

    @property
    def url(self) -> str:
        return question_url(self.question)

    def request(self) -> types.ElicitRequest:
        require_open(self.question)
        fields: dict[str, Any] = {}
        if self.question.takes_answer:
            for number, item in self._items.items():
                fields |= _fields_of(item, number, alone=len(self._items) == 1)
            for related in related_decisions(self.question) if self._items == self._left else ():
                if related.named:
                    fields[f"decision_{related.decision.number}"] = _choice(
                        f"{related.decision.label}: {related.decision.statement}", _STANCES
                    )
            required = []
        else:
            fields["verdict"] = _choice("Your decision", self._verdicts())
            required = ["verdict"]
        return _request(self._message(), {**fields, "notes": _NOTES}, required)

    @cached_property
    def _left(self) -> dict[int, Item]:
        """The items without a reply, by their numbers."""
        items = enumerate(self.question.items, 1)
        return {n: item for n, item in items if str(item["question"]) not in self.draft.answers}

    @cached_property
    def _items(self) -> dict[int, Item]:
        """The items to ask about: the next one, or all that are left once the task has had many forms."""
        question = self.question
        before = question.task.questions.filter(number__lt=question.number).values_list("items", flat=True)
        if sum(map(len, before)) + len(question.items) > _MOST_SINGLE_ITEMS:
            return self._left
        return dict([*self._left.items()][:1])

    def _verdicts(self) -> dict[str, str]:
        """Return the verdicts with their words. Nobody approves here a call that the form does not show."""
        shown = visible(self._headline)
        verdicts = {one.value: str(one.label) for one in VERDICTS[self.question.kind]}
        if self.question.kind == QuestionKind.PLAN:
            verdicts[Verdict.APPROVED.value] += f": I have read the plan at {self.url}"
        elif "\n" in shown or len(shown) > _SHOWN:
            del verdicts[Verdict.APPROVED.value]
        return verdicts

    def _message(self) -> str:
        """Return the card as text: first what is asked, because Claude Code shows three lines of it."""
        question = self.question
        where = f"{question.task.project} › {question.task} › {question.step.name}"
        lines = [f"Not accepted: {self.draft.problem}"] if self.draft.problem else []
        lines += [self._headline, f"{where} · {self.url}"]
        if question.takes_answer:
            for item in self._items.values():
                lines.append(str(item["question"]))
                for option in item.get("options") or ():
                    if description := option.get("description"):
                        lines.append(f"• {option['label']}: {description}")
        for piece in question.evidence or ():
            lines += [f"{piece.get('title', '')}:", str(piece.get("text", ""))]
        text = visible("\n".join(lines))
        if len(text) > LONGEST_MESSAGE:
            text = f"{text[:LONGEST_MESSAGE]} …\nThis is not all of it: {self.url}"
        return text

    @property
    def _headline(self) -> str:
        """What is asked, of an approval with the whole call."""
        question, total = self.question, len(self.question.items)
        if question.takes_answer:
            if len(self._items) == total:
                return str(question.title)
            numbers = ", ".join(map(str, self._items))
            return f"Question {numbers} of {total}: {title_of([*self._items.values()])}"
        parts = [" ".join(question.headline.split()), question.long_command]
        if question.kind == QuestionKind.APPROVAL:
            for piece in _rest_of_call(question):
                text = str(piece.get("text"))
                if piece.get("kind") == "text":  # JSON, whose texts have no line ends
                    text = re.sub(r"\n *", " ", text)
                parts.append(f"{piece.get('title')}: {text}")
        return " ".join(filter(None, parts))

    def store(self, caller: Caller, content: Mapping[str, Any]) -> Any:
        """Also return None if the reply is not usable: the next form says why."""
        by, question = caller.principal, self.question
        notes = _text(content.get("notes"))

        def act() -> Answered | None:
            if not question.takes_answer:
                verdict = _text(content.get("verdict"))
                return decide(question, verdict, by=by, via=Channel.MCP_FORM, notes=notes)
            answers = {str(item["question"]): _answer(content, n) for n, item in enumerate(question.items, 1)}
            reply = Reply(answers, notes, decision_input=DecisionInput(stances=_stances(content)))
            return answer_items(self.draft, reply, by=by, via=Channel.MCP_FORM)

        try:
            done = run(caller, lambda: take_reply(self.draft, act), via=Channel.MCP_FORM)
        except Failed as error:
            if error.problem["status"] >= 500:  # the program sends the reply again
                raise
            said = [one["message"] for one in error.problem.get("errors", ())]
            self.draft.count_reply(problem=" ".join(said) or error.problem["detail"])
            if question.is_open and error.problem["status"] in _NOT_USABLE:
                return None
            raise
        if done is None:
            return None
        answered = AnsweredOut(question=QuestionOut.from_row(done.question), repeated=done.repeated)
        return answered.model_dump(mode="json")

    def decline(self) -> None:
        AnswerDraft.objects.update_or_create({"declined": True}, question=self.question, user=self.draft.user)


def _rest_of_call(question: Question) -> list[Mapping[str, Any]]:
    """Return what belongs to a call beside its headline and its command: its input, its diff, its folder."""
    pieces: list[Mapping[str, Any]] = [piece for piece in question.evidence if piece.get("kind") != "rule"]
    if any(piece.get("kind") == "command" for piece in pieces):
        return [piece for piece in pieces if piece.get("title") in _PARTS_OF_COMMAND]
    return pieces


@dataclass(frozen=True)
class ReviewForm:
    """A review that a program has written, for the person to look at, change and send."""

    task: Task
    given: Mapping[str, Any]
    key: str = field(default="review")

    @property
    def url(self) -> str:
        return page_url(self.task)

    def request(self) -> types.ElicitRequest:
        lines = [f"{self.task.project} › {self.task}", "", "Your review of the result:"]
        for thread in self.given.get("threads") or ():
            if isinstance(thread, Mapping):
                where = ":".join(str(thread[name]) for name in ("path", "line") if thread.get(name))
                lines.append(f"• {where} {thread.get('text', '')}".replace("  ", " "))
        message = visible("\n".join(lines))
        if len(message) > LONGEST_MESSAGE:
            raise BadInput(f"These threads are too long for a form. Review the result at {self.url}")
        verdict = _choice("Verdict", {one.value: one.label for one in ReviewVerdict})
        words = {"type": "string", "title": "What you say about the whole"}
        if self.given.get("body"):
            words["default"] = _text(self.given["body"])
        return _request(f"{message}\n\n{self.url}", {"verdict": verdict, "body": words}, ["verdict"])

    def store(self, caller: Caller, content: Mapping[str, Any]) -> Any:
        said = {"verdict": _text(content.get("verdict")), "body": _text(content.get("body"))}
        return Operation("create_review").call(caller, {**self.given, **said}, via=Channel.MCP_FORM)


# The forms of tools. Each returns None if the program's own arguments are enough.


def form_of_answer(caller: Caller, given: Mapping[str, Any]) -> Form | None:
    question = _question(caller, given)
    needs_person = question.is_about_cost and not _programs_decide(question.task)
    if given.keys() & {"answer", "answers"} and not needs_person:
        return None
    return QuestionForm.of(caller, question)[0]


def form_of_decision(caller: Caller, given: Mapping[str, Any]) -> Form | None:
    question = _question(caller, given)
    return None if _programs_decide(question.task) else QuestionForm.of(caller, question)[0]


def form_of_review(caller: Caller, given: Mapping[str, Any]) -> Form | None:
    def look_up() -> Task:
        task = permissions.task_or_404(caller.principal, given["task_id"])
        permissions.require_actor(caller.principal, task.project)
        return task

    if not isinstance(given.get("task_id"), int):
        return None
    task = run(caller, look_up)
    return None if _programs_decide(task) else ReviewForm(task, given)


def _question(caller: Caller, given: Mapping[str, Any]) -> Question:
    """Return an open question that the caller may answer. Raises Failed as the API would."""
    found = Operation("get_question").call(
        caller, {name: given[name] for name in ("question_id",) if name in given}
    )

    def look_up() -> Question:
        question = permissions.question_or_404(caller.principal, found["id"])
        permissions.require_actor(caller.principal, question.task.project)
        return question

    return run(caller, look_up)


def _programs_decide(task: Task) -> bool:
    return bool(task.project.overrides.get("programs_decide"))


# Fields, and what comes back in them.


def _fields_of(item: Item, number: int, *, alone: bool) -> dict[str, Any]:
    """Return the fields of an item: its options, and a text for all other answers."""
    header = str(item.get("header") or "Answer")
    name = header if alone else f"{header}: {title_of([{'question': item['question']}])}"
    labels = {str(one["label"]): _described(one) for one in item.get("options") or ()}
    text = {"type": "string", "title": _short(name)}
    if not labels:
        return {f"other_{number}": text}
    if item.get("multiSelect"):
        options = [{"const": label, "title": _short(words)} for label, words in labels.items()]
        chosen = {"type": "array", "title": _short(name), "items": {"anyOf": options}}
    else:
        chosen = _choice(name, labels)
    return {
        f"answer_{number}": chosen,
        f"other_{number}": {**text, "title": _short(f"{header}: in your own words")},
    }


def _described(option: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (str(option["label"]), str(option.get("description") or ""))))


def _choice(title: str, options: Mapping[str, str]) -> dict[str, Any]:
    titled = [{"const": value, "title": _short(words)} for value, words in options.items()]
    return {"type": "string", "title": _short(title), "oneOf": titled}


def _short(text: str) -> str:
    text = " ".join(visible(text).split())
    return text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]} …"


def _request(message: str, fields: Mapping[str, Any], required: list[str]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": dict(fields), "required": required}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _answer(content: Mapping[str, Any], number: int) -> str:
    """Return the answer to an item: the person’s own words if there are some, behind choices of several."""
    chosen, other = content.get(f"answer_{number}"), _text(content.get(f"other_{number}")).strip()
    if isinstance(chosen, list):
        return ", ".join([*map(_text, chosen), *filter(None, [other])])
    return other or _text(chosen)


def _stances(content: Mapping[str, Any]) -> dict[int, StanceChoice]:
    return {
        int(found[1]): StanceChoice(Stance(value))
        for name, value in content.items()
        if (found := _DECISION.fullmatch(name)) and value in list(_STANCES)
    }


def _text(value: Any) -> str:
    return "" if value is None else str(value)

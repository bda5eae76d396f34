"""How the terminal says that an answer holds for later tasks, and what it means for decisions that hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.terminal import Screen, resolve_choice
from tasks_app.core.errors import BadInput
from tasks_app.models import Question
from tasks_app.services.decisions.answering import (
    DecisionInput,
    Remember,
    Stance,
    StanceChoice,
    statement_for,
)
from tasks_app.services.decisions.citing import RelatedDecision
from tasks_app.services.decisions.content import split_paths


def add_decision_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--remember",
        metavar="SCOPE",
        choices=["task", "paths", "step", "project"],
        default="task",
        help="how far the answer holds: task (default), paths (with --path), step (the one that asked) or "
        "project. All but task make it a decision, which agents of later tasks read",
    )
    parser.add_argument(
        "--path", metavar="GLOB", action="append", default=[], help="for --remember paths; repeated for more"
    )
    parser.add_argument(
        "--statement",
        metavar="TEXT",
        action="append",
        default=[],
        help="what is decided; else the chosen option with its description. Of a question with several items "
        "N=TEXT, repeated: only these items are remembered",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why it is decided so")
    parser.add_argument(
        "--decision",
        metavar="D-N=STANCE",
        action="append",
        default=[],
        help="what the answer means for a decision: agree, supersede, exception, narrow:GLOB,… (where it "
        "still holds), or unaffected (it contradicts nothing)",
    )


def says_something(options: dict[str, Any]) -> bool:
    """Return whether the options say something about decisions."""
    return options["remember"] != "task" or any(options[one] for one in ("path", "statement", "decision"))


def decision_input(question: Question, options: dict[str, Any]) -> DecisionInput:
    """Return what the options say about decisions. Raises BadInput, which names the option."""
    scope, paths = options["remember"], options["path"]
    if paths and scope != "paths":
        raise BadInput("goes with --remember paths", where="--path")
    if scope == "task" and (options["statement"] or options["reason"]) and not options["decision"]:
        raise BadInput("say how far the answer holds: project, paths or step", where="--remember")
    remember = Remember(scope, paths=paths, reason=options["reason"])
    said = [_stance_option(text) for text in options["decision"]]
    stances = dict(said)
    if len(stances) < len(said):
        raise BadInput("say once what the answer means for a decision", where="--decision")
    given = options["statement"]
    if len(question.items) == 1:
        if len(given) > 1:
            raise BadInput("give one", where="--statement")
        return DecisionInput(replace(remember, statement="".join(given)), stances)
    statements = dict(_statement(question, text) for text in given) if given else None
    return DecisionInput.with_statements(remember, statements, stances)


def _statement(question: Question, text: str) -> tuple[str, str]:
    """Return an item's question and its statement."""
    found = re.fullmatch(r"([0-9]{1,3})=(.*)", text, re.DOTALL)
    number = int(found[1]) if found else 0
    if found is None or not 1 <= number <= len(question.items):
        raise BadInput(
            f"“{text[:60]}” must be N=TEXT with N from 1 to {len(question.items)}", where="--statement"
        )
    return str(question.items[number - 1]["question"]), found[2]


def remember_hint() -> str:
    return "With @project, or @paths src/**, at its end an answer holds for later tasks, too."


@dataclass(frozen=True)
class Marked:
    """An answer that ends with a mark such as `@project`, and how far it then holds.

    `is_apart`: the mark stands on a line of its own. Otherwise it may be a part of a free text.
    """

    answer: str
    mark: str
    remember: Remember
    is_apart: bool


def marked(typed: str) -> Marked | None:
    """Return the answer without the mark at its end; None if it has none."""
    found = re.fullmatch(r"(.*\S)(\s+)(@project|@paths[^\S\n]+([^\n]*\S))\s*", typed, re.DOTALL)
    if found is None:
        return None
    answer, blank, mark, globs = found.groups()
    remember = Remember("paths", paths=split_paths(globs)) if globs else Remember("project")
    return Marked(answer, mark, remember, is_apart="\n" in blank)


def _stance_option(text: str) -> tuple[int, StanceChoice]:
    found = re.fullmatch(r"(?:[Dd]-)?([0-9]{1,9})=([a-z]+)(?::(.+))?", text)
    if found is None or found[2] not in list(Stance):
        raise BadInput(
            f"“{text[:60]}” must be like D-17=supersede, with agree, supersede, exception, unaffected or "
            "narrow:src/**",
            where="--decision",
        )
    return int(found[1]), StanceChoice(found[2], split_paths(found[3] or ""))


# Read at the prompt what an answer means for decisions, and how far it holds (D2, D6).


#: By the number that is typed. `3` is followed by paths.
_STANCES = {
    "1": Stance.SUPERSEDE,
    "2": Stance.EXCEPTION,
    "3": Stance.NARROW,
    "4": Stance.AGREE,
    "5": Stance.UNAFFECTED,
}
_CONTRADICTION: Sequence[str] = ("1", "2", "3")


class DecisionPrompt:
    """`read` reads what is typed. It raises EOFError when there is no more input."""

    def __init__(self, screen: Screen, read: Callable[[], str]) -> None:
        self._screen, self._read = screen, read

    def is_meant(self, mark: Marked, item: Mapping[str, Any]) -> bool:
        """Return whether the mark is none of the answer. With a free text before it, this is asked."""
        labels = [str(option.get("label", "")) for option in item.get("options") or ()]
        is_choice = mark.answer in labels or resolve_choice(item, mark.answer) != mark.answer
        if is_choice or mark.is_apart:
            return True
        self._screen.say(
            f"Remember “{mark.answer}” {_for(mark.remember)}? Type y, or n if “{mark.mark}” belongs to the "
            "answer.",
            indent=2,
        )
        while (typed := self._read().strip().casefold()) not in ("y", "n"):
            self._screen.say("Type y or n.", indent=2)
        return typed == "y"

    def read_all(
        self,
        question: Question,
        related: Sequence[RelatedDecision],
        answers: Mapping[str, str],
        remembered: Mapping[str, Remember],
    ) -> DecisionInput:
        """Read the stances, and then the statements of what is remembered or holds instead."""
        stances = {one.decision.number: said for one in related if (said := self._stance_on(one, answers))}
        by_item = {**remembered}
        for one in related:
            said = stances.get(one.decision.number)
            if said and said.stance == Stance.SUPERSEDE:
                by_item.setdefault(str(one.items[0]["question"]), Remember())
        for item in question.items:
            asked = str(item["question"])
            if asked in by_item:
                statement = self._statement(
                    statement_for(item, answers[asked], of_several=len(question.items) > 1), by_item[asked]
                )
                by_item[asked] = replace(by_item[asked], statement=statement)
        if len(question.items) == 1:
            return DecisionInput(by_item.get(question.headline, Remember()), stances)
        return DecisionInput(stances=stances, by_item=by_item)

    def _stance_on(self, one: RelatedDecision, answers: Mapping[str, str]) -> StanceChoice | None:
        """Read what the answer means for a decision; None if nothing need be said."""
        agrees, label = one.agrees(answers), one.decision.label
        if agrees or not one.must_be_judged:
            return None
        said = f"Your answer contradicts {label}" if agrees is False else f"What does it mean for {label}"
        allowed = _CONTRADICTION if agrees is False else tuple(_STANCES)
        if one.is_comparable:  # only the same answer confirms it
            allowed = tuple(key for key in allowed if _STANCES[key] != Stance.AGREE)
        self._screen.say(f"{said}: {one.decision.statement}", indent=2, style="bold")
        while True:
            self._screen.say(_menu(label, allowed), indent=2, style="dim")
            if stance := _stance(self._read(), allowed):
                return stance

    def _statement(self, prepared: str, remember: Remember) -> str:
        """Read the statement of a decision; the prepared one if nothing is typed."""
        self._screen.say(f"What agents of later tasks read {_for(remember)}:", indent=2, style="dim")
        self._screen.say(prepared, indent=4, style="bold")
        self._screen.say("Press Enter to keep it, or type another statement.", indent=2, style="dim")
        try:
            typed = self._read()
        except EOFError:  # a pipe without a line for it: the answer is there
            return prepared
        return typed.strip() or prepared


def _menu(label: str, allowed: Collection[str]) -> str:
    choices = {
        "1": "your answer replaces it",
        "2": "an exception",
        "3 PATHS": f"limit {label} to these paths, such as 3 src/**",
        "4": f"{label} is right",
        "5": "your answer does not affect it",
    }
    return "Type " + ", ".join(f"{key}: {said}" for key, said in choices.items() if key[0] in allowed) + "."


def _stance(typed: str, allowed: Collection[str]) -> StanceChoice | None:
    """Return the stance that was typed; None if it is none of those that are allowed."""
    number, _, rest = typed.strip().partition(" ")
    paths = [path for path in re.split(r"[,\s]+", rest) if path]
    if number not in allowed or bool(paths) != (_STANCES[number] is Stance.NARROW):
        return None
    return StanceChoice(_STANCES[number], tuple(paths))


def _for(remember: Remember) -> str:
    if remember.scope == "paths":
        return f"for {', '.join(remember.paths)}"
    return "for the whole project" if remember.makes_decision else "where the replaced decision held"

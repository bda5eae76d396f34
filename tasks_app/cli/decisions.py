"""Options that say how far an answer holds, and what it means for decisions (D2, D6)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.core.errors import BadInput
from tasks_app.models import Question
from tasks_app.services.decisions.answering import (
    DecisionInput,
    Remember,
    Stance,
    StanceChoice,
)
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


def _stance_option(text: str) -> tuple[int, StanceChoice]:
    found = re.fullmatch(r"(?:[Dd]-)?([0-9]{1,9})=([a-z]+)(?::(.+))?", text)
    if found is None or found[2] not in list(Stance):
        raise BadInput(
            f"“{text[:60]}” must be like D-17=supersede, with agree, supersede, exception, unaffected or "
            "narrow:src/**",
            where="--decision",
        )
    return int(found[1]), StanceChoice(found[2], split_paths(found[3] or ""))

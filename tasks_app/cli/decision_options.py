"""How the terminal says that an answer holds for later tasks, and what it means for decisions that hold."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.core.errors import BadInput
from tasks_app.services.decisions.answering import ForDecisions, Remember, Stance, StanceOn


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
        "--statement", metavar="TEXT", default="", help="what is decided; else question and answer"
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why it is decided so")
    parser.add_argument(
        "--decision",
        metavar="D-N=STANCE",
        action="append",
        default=[],
        help="what the answer means for a decision: agree, supersede, exception, or narrow:GLOB,… (where it "
        "still holds)",
    )


def for_decisions(options: dict[str, Any]) -> ForDecisions:
    """Return what the options say about decisions. Raises BadInput, which names the option."""
    scope, paths = options["remember"], options["path"]
    if paths and scope != "paths":
        raise BadInput("goes with --remember paths", where="--path")
    if scope == "task" and (options["statement"] or options["reason"]) and not options["decision"]:
        raise BadInput("say how far the answer holds: project, paths or step", where="--remember")
    remember = Remember(scope, paths=paths, statement=options["statement"], reason=options["reason"])
    return ForDecisions(remember, dict(_stance(text) for text in options["decision"]))


def remember_hint() -> str:
    return "With @project, or @paths src/**, at its end an answer holds for later tasks, too."


def answer_and_scope(typed: str, remember: Remember) -> tuple[str, Remember]:
    """Split what was typed at a prompt into the answer and how far it holds; else `remember` stays."""
    if found := re.fullmatch(r"(.*\S)\s+@project", typed, re.DOTALL):
        return found[1], Remember("project")
    if found := re.fullmatch(r"(.*\S)\s+@paths\s+([^\n]*\S)", typed, re.DOTALL):
        return found[1], Remember("paths", paths=re.split(r"[,\s]+", found[2]))
    return typed, remember


def _stance(text: str) -> tuple[int, StanceOn]:
    found = re.fullmatch(r"(?:[Dd]-)?([0-9]{1,9})=([a-z]+)(?::(.+))?", text)
    if found is None or found[2] not in list(Stance):
        raise BadInput(
            f"“{text[:60]}” must be like D-17=supersede, with agree, supersede, exception or narrow:src/**",
            where="--decision",
        )
    paths = [path for path in (found[3] or "").split(",") if path]
    return int(found[1]), StanceOn(found[2], paths)

"""Approvals of calls and plans: equal calls, the rule that asks for an approval, and what a plan changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.yaml_text import YamlDocument, read_yaml
from tasks_app.core.asked_items import SHELL_FOLDER
from tasks_app.core.errors import NotOpen, WorkspaceError
from tasks_app.git import committed_text
from tasks_app.models import Channel, Project, Question, QuestionKind, Verdict, paths
from tasks_app.permissions import Principal
from tasks_app.services.projects.settings import CONFIG_FILE
from tasks_app.services.questions.answers import decide
from tasks_app.services.questions.question_outcomes import Answered

#: What an agent writes beside a call, which changes nothing of it.
_BESIDE = "description"
_KEY = "askBefore"
#: Lines of two plans together that are compared.
_MOST_COMPARED = 4_000


def equal_calls(question: Question) -> list[Question]:
    """Return the other open approvals of the task that are about the same call."""
    if question.kind != QuestionKind.APPROVAL:
        return []
    others = question.task.questions.open().filter(kind=QuestionKind.APPROVAL).exclude(pk=question.pk)
    return [one for one in others if _call_of(one) == _call_of(question)]


def _call_of(question: Question) -> tuple[Any, ...]:
    """Return the tool, as the headline names it, its input, and what else is shown, such as its folder."""
    given = {key: value for key, value in question.tool_input.items() if key != _BESIDE}
    return question.headline, given, [(piece.get("kind"), piece.get("text")) for piece in question.evidence]


def together(questions: Iterable[Question]) -> list[list[Question]]:
    """Group open approvals of the same call in whichever folders of a task, and each other question alone."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        key = str(question.pk)
        if question.is_open and question.kind == QuestionKind.APPROVAL:
            headline, given, shown = _call_of(question)
            folder = ("text", shell_folder(question))
            key = repr((question.task_id, headline, given, [one for one in shown if one != folder]))
        groups.setdefault(key, []).append(question)
    return list(groups.values())


def shell_folder(question: Question) -> str:
    """Return the folder in which the command would run; "" for the workspace, and if it is not known."""
    folders = (str(one.get("text")) for one in question.evidence if one.get("title") == SHELL_FOLDER)
    return next(folders, "")


def approve_equal_calls(question: Question, *, by: Principal, via: Channel, notes: str = "") -> Answered:
    """Approve the call and the equal ones, each with an answer of its own.

    A call that somebody else decided meanwhile keeps that decision. If the request is sent again, a call that
    waits only since the first was approved stays open. Raises what `decide` does for the first.
    """
    others = equal_calls(question)
    done = decide(question, Verdict.APPROVED, by=by, via=via, notes=notes)
    approved = []
    for other in others:
        if done.question.answered_at and other.asked_at > done.question.answered_at:
            continue
        try:
            decide(other, Verdict.APPROVED, by=by, via=via, notes=notes)
        except NotOpen:
            continue
        approved.append(other.pk)
    return replace(done, approved_too=tuple(approved))


def origin_of_rule(question: Question) -> str:
    """Return the file and line of the rule, or the page of settings; "" if neither has it any more."""
    task, rule = question.task, question.rule
    if not rule:
        return ""
    if rule in str(task.project.overrides.get("ask_before", "")).splitlines():
        return "the project’s settings"
    if not task.base_commit:
        return ""
    line = _line_of(task.project_id, task.base_commit, task.pipeline, rule)
    return f"{CONFIG_FILE}, line {line}" if line else ""


@lru_cache(maxsize=500)
def _line_of(project_id: int, commit: str, pipeline: str, rule: str) -> int | None:
    """Return the line of the rule: one of the task's pipeline goes before one of the whole file."""
    project = Project.objects.get(pk=project_id)
    try:
        text = committed_text(paths.repository(project), commit=commit, path=CONFIG_FILE)
        document = read_yaml(text or "", where=CONFIG_FILE)
    except (WorkspaceError, ConfigInvalid):
        return None
    found = [place for place in document.lines if _KEY in place[-2:] and _value_at(document, place) == rule]
    found.sort(key=lambda place: place[:2] != ("pipelines", pipeline))
    return document.lines[found[0]] if found else None


def _value_at(document: YamlDocument, place: tuple[str | int, ...]) -> object:
    value: object = document.value
    for key in place:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def changed_since(earlier: Question, question: Question) -> list[str]:
    """Return the hunks of a diff from an earlier plan to this one, as lines; none if they are too long."""
    old, new = earlier.plan.split("\n"), question.plan.split("\n")
    if len(old) + len(new) > _MOST_COMPARED:  # difflib's time grows with the square of the length
        return []
    return list(difflib.unified_diff(old, new, lineterm=""))[2:]

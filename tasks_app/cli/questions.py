"""Show a question in the terminal, and say where else it can be answered."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tasks_app.cli.screen import Screen
from tasks_app.models import Question, QuestionKind
from tasks_app.reporting.commands import answer_command, question_url


def show_question_heading(screen: Screen, question: Question) -> None:
    """Print the question's id, project, task and step."""
    task = question.task
    screen.say()
    screen.say(
        f"Question {question.pk} · {task.project.name} › {task.title} › {question.step.name}",
        style="bold yellow",
    )


def show_question(screen: Screen, question: Question) -> None:
    """Print the evidence and the items of a question."""
    show_evidence(screen, question)
    if question.takes_answer:
        for item in question.items:
            show_item(screen, item)
    else:
        show_item(screen, {**question.items[0], "question": question.headline_by_evidence})


def show_evidence(screen: Screen, question: Question) -> None:
    """Print the command, file, diff or plan that is to be approved."""
    for piece in question.evidence:
        screen.say(piece["title"], indent=2, style="dim")
        for line in piece["text"].strip("\n").split("\n"):
            screen.say(f"│ {line}", indent=2, wrap=False)


def show_item(screen: Screen, item: Mapping[str, Any]) -> None:
    """Print one item with its numbered options, their descriptions and previews."""
    header = f"[{item['header']}] " if item.get("header") else ""
    screen.say(f"{header}{item['question']}", indent=2, style="bold")
    for number, option in enumerate(item.get("options") or (), start=1):
        screen.say(f"{number}  {option['label']}", indent=4)
        if option.get("description"):
            screen.say(str(option["description"]), indent=7, style="dim")
        for line in str(option.get("preview") or "").strip("\n").split("\n"):
            if line or option.get("preview"):
                screen.say(f"│ {line}", indent=7, wrap=False)


def decision_hint(question: Question) -> str:
    other = "deny" if question.kind == QuestionKind.APPROVAL else "send back"
    return f"Type 1 to approve, 2 to {other}."


def amount_hint() -> str:
    return "Type 1 or 2, or an amount of dollars with its sign, such as $2.50."


def answer_hint(item: Mapping[str, Any]) -> str:
    if not item.get("options"):
        return "Type your answer."
    if item.get("multiSelect"):
        return "Type one or more numbers, separated by commas, or your own answer."
    return "Type a number, or your own answer."


def show_how_to_answer(screen: Screen, question: Question) -> None:
    screen.say(f"Answer with        {answer_command(question)}", indent=2, wrap=False)
    screen.say(f"or in the browser  {question_url(question)}", indent=2, wrap=False)


def run_task_command(task_id: int, *, project: str) -> str:
    return f"manage.py run_task {task_id} --project {shlex.quote(project)}"

"""A question as a terminal shows it, and where else it can be answered."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tasks_app.cli.screen import Screen
from tasks_app.models import Question, QuestionKind
from tasks_app.reporting.commands import answer_command, question_url


def show_place(screen: Screen, question: Question) -> None:
    """Who asks: project, task, step and the question's id."""
    task = question.task
    screen.say()
    screen.say(
        f"Question {question.pk} · {task.project.name} › {task.title} › {question.step.name}",
        style="bold yellow",
    )


def show_question(screen: Screen, question: Question) -> None:
    """All that there is to answer, or to decide by."""
    show_evidence(screen, question)
    if question.kind == QuestionKind.CLARIFICATION:
        for item in question.items:
            show_item(screen, item)
    else:
        show_item(screen, {**question.items[0], "question": question.headline_by_evidence})


def show_evidence(screen: Screen, question: Question) -> None:
    """What an approval or a plan is judged by: the command, the file, the difference, the plan."""
    for piece in question.evidence:
        screen.say(piece["title"], indent=2, style="dim")
        for line in piece["text"].strip("\n").split("\n"):
            screen.say(f"│ {line}", indent=2, wrap=False)


def show_item(screen: Screen, item: Mapping[str, Any]) -> None:
    """One question with its numbered options, their descriptions and previews."""
    header = f"[{item['header']}] " if item.get("header") else ""
    screen.say(f"{header}{item['question']}", indent=2, style="bold")
    for number, option in enumerate(item.get("options") or (), start=1):
        screen.say(f"{number}  {option['label']}", indent=4)
        if option.get("description"):
            screen.say(str(option["description"]), indent=7, style="dim")
        for line in str(option.get("preview") or "").strip("\n").split("\n"):
            if line or option.get("preview"):
                screen.say(f"│ {line}", indent=7, wrap=False)


def how_to_decide(question: Question) -> str:
    other = "deny it" if question.kind == QuestionKind.APPROVAL else "send it back"
    return f"Type 1 to approve it, 2 to {other}."


def how_to_choose(item: Mapping[str, Any]) -> str:
    if not item.get("options"):
        return "Type your answer."
    if item.get("multiSelect"):
        return "Type one or more numbers, separated by commas, or an answer of your own."
    return "Type a number, or an answer of your own."


def show_ways(screen: Screen, question: Question) -> None:
    screen.say(f"Answer it with  {answer_command(question)}", indent=2, wrap=False)
    screen.say(f"or in the web   {question_url(question)}", indent=2, wrap=False)


def run_again(task_id: int, *, project: str) -> str:
    return f"manage.py run_task {task_id} --project {shlex.quote(project)}"

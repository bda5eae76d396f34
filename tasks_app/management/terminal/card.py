"""A question as a terminal shows it, and where else it can be answered."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.urls import reverse

from tasks_app.management.terminal.screen import Screen
from tasks_app.models import Question


def show_place(screen: Screen, question: Question) -> None:
    """Who asks: project, task, step and the question's id."""
    task = question.task
    screen.say()
    screen.say(
        f"Question {question.pk} · {task.project.name} › {task.title} › {question.step.name}",
        style="bold yellow",
    )


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


def how_to_choose(item: Mapping[str, Any]) -> str:
    if not item.get("options"):
        return "Type your answer."
    if item.get("multiSelect"):
        return "Type one or more numbers, separated by commas, or an answer of your own."
    return "Type a number, or an answer of your own."


def command_for(question: Question) -> str:
    """The command that answers it later, with the places to fill in."""
    if len(question.items) == 1:
        return f'manage.py answer {question.pk} "…"'
    items = " ".join(f'--item {number}="…"' for number in range(1, len(question.items) + 1))
    return f"manage.py answer {question.pk} {items}"


def web_address(question: Question) -> str:
    """Where the question can be answered in a browser, if a portal is running."""
    return f"{_portal()}{reverse('question', args=[question.pk])}"


def show_ways(screen: Screen, question: Question) -> None:
    screen.say(f"Answer it with  {command_for(question)}", indent=2)
    screen.say(f"or in the web   {web_address(question)}", indent=2)


def run_again(task_id: int, *, project: str) -> str:
    return f"manage.py run_task {task_id} --project {shlex.quote(project)}"


def _portal() -> str:
    environment = settings.ENVIRONMENT
    if environment.url:
        return str(environment.url)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(environment.bind.host, environment.bind.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{environment.bind.port}"

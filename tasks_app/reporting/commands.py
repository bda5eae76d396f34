"""Commands and URLs that are shown to people: how to fetch a branch and where to answer a question."""

from __future__ import annotations

import shlex

from django.conf import settings
from django.urls import reverse

from tasks_app.models import Project, Question, QuestionKind, Task, paths


def fetch_command_for(task: Task) -> str | None:
    """The git command that brings the task's branch into a clone; None if it has no work yet."""
    return fetch_command(task.project, task.branch) if task.head_commit else None


def fetch_command(project: Project, branch: str) -> str:
    """Creates the branch in the clone, too: with its name alone there would only be a FETCH_HEAD."""
    return shlex.join(["git", "fetch", str(paths.repository(project).path), f"{branch}:{branch}"])


def answer_command(question: Question) -> str:
    """The command that answers the question later, with the places to fill in."""
    if other := {QuestionKind.APPROVAL: "--deny", QuestionKind.PLAN: "--send-back"}.get(
        QuestionKind(question.kind)
    ):
        return f'manage.py answer {question.pk} --approve    (or {other} "…")'
    if len(question.items) == 1:
        return f'manage.py answer {question.pk} "…"'
    items = " ".join(f'--item {number}="…"' for number in range(1, len(question.items) + 1))
    return f"manage.py answer {question.pk} {items}"


def question_url(question: Question) -> str:
    """Where the question can be answered in a browser, if a portal is running."""
    return f"{settings.ENVIRONMENT.address}{reverse('question', args=[question.pk])}"

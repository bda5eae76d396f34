"""Commands and URLs that are shown to people: how to fetch a branch and where to answer a question."""

from __future__ import annotations

import shlex

from django.conf import settings
from django.urls import reverse

from tasks_app.models import Decision, Project, Question, QuestionKind, Sequence, Task, paths


def fetch_command_for(task: Task) -> str | None:
    """Return the git command that fetches the task's branch into a clone, or None if nothing has changed."""
    if task.head_commit in ("", task.base_commit):
        return None
    return fetch_command(task.project, task.branch)


def fetch_command(project: Project, branch: str) -> str:
    """Return the git command that fetches a branch and also creates it in the clone, not only FETCH_HEAD."""
    return shlex.join(["git", "fetch", str(paths.repository(project).path), f"{branch}:{branch}"])


def answer_command(question: Question) -> str:
    """Return the command that answers the question, with “…” as placeholders."""
    if other := {QuestionKind.APPROVAL: "--deny", QuestionKind.PLAN: "--send-back"}.get(
        QuestionKind(question.kind)
    ):
        return f'cat-herder answer {question.pk} --approve    (or {other} "…")'
    if len(question.items) == 1:
        return f'cat-herder answer {question.pk} "…"'
    items = " ".join(f'--item {number}="…"' for number in range(1, len(question.items) + 1))
    return f"cat-herder answer {question.pk} {items}"


def mcp_command(portal: str, token: str = "") -> str:
    """Return the command that adds the portal at this URL to Claude Code; “cath_…” stands for no token."""
    header = shlex.quote(f"Authorization: Bearer {token or 'cath_…'}")
    return f"claude mcp add --transport http cat-herder {portal}/mcp --header {header}"


def page_url(thing: Task | Sequence) -> str:
    """Return the URL of the page of a task or a sequence."""
    name = "task" if isinstance(thing, Task) else "sequence"
    return f"{settings.ENVIRONMENT.address}{reverse(name, args=[thing.pk])}"


def question_url(question: Question) -> str:
    """Return the URL at which the question can be answered."""
    return f"{settings.ENVIRONMENT.address}{reverse('question', args=[question.pk])}"


def decision_url(decision: Decision) -> str:
    """Return the URL of the decision's page. Its project must be loaded."""
    page = reverse("decision", args=[decision.project_id, decision.number])
    return f"{settings.ENVIRONMENT.address}{page}"

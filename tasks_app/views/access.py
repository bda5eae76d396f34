"""Who may see what: the one place where pages turn a number into a row."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from tasks_app.models import Project, Question, Sequence, Step, Task, User


def person(request: HttpRequest) -> User:
    """Who asks. Only for pages behind the login, which is all of them but the login itself."""
    return cast(User, request.user)


def task_or_404(request: HttpRequest, task_id: int) -> Task:
    tasks = Task.objects.visible_to(person(request)).select_related("project", "created_by", "sequence")
    return get_object_or_404(tasks, pk=task_id)


def project_or_404(request: HttpRequest, project_id: int) -> Project:
    return get_object_or_404(Project.objects.visible_to(person(request)), pk=project_id)


def sequence_or_404(request: HttpRequest, sequence_id: int) -> Sequence:
    sequences = Sequence.objects.visible_to(person(request)).select_related("project", "created_by")
    return get_object_or_404(sequences, pk=sequence_id)


def step_or_404(request: HttpRequest, task_id: int, position: int) -> Step:
    return get_object_or_404(Step, task=task_or_404(request, task_id), position=position)


def question_or_404(request: HttpRequest, question_id: int) -> Question:
    questions = Question.objects.visible_to(person(request)).select_related(
        "task__project", "step", "run", "answered_by"
    )
    return get_object_or_404(questions, pk=question_id)


def is_htmx(request: HttpRequest) -> bool:
    """Whether a part of a page is wanted and not the page."""
    return request.headers.get("HX-Request") == "true"

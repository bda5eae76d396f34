"""Who may see what: the one place where a number from outside becomes a row. What one may not see is 404.

Pages, the API and downloads all come through here; `visible_to` of the querysets is the rule itself.
"""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from tasks_app.models import ApiToken, Project, Question, Sequence, Step, Task, User


def project_for(user: User, project_id: int) -> Project:
    return get_object_or_404(Project.objects.visible_to(user), pk=project_id)


def project_named(user: User, name: str) -> Project:
    return get_object_or_404(Project.objects.visible_to(user), name=name)


def token_for(user: User, token_id: int) -> ApiToken:
    """Tokens are their owner's alone, and site admins have the audit room."""
    return get_object_or_404(ApiToken, user=user, pk=token_id)


def task_for(user: User, task_id: int) -> Task:
    tasks = Task.objects.visible_to(user).select_related("project", "created_by", "sequence")
    return get_object_or_404(tasks, pk=task_id)


def sequence_for(user: User, sequence_id: int) -> Sequence:
    sequences = Sequence.objects.visible_to(user).select_related("project", "created_by")
    return get_object_or_404(sequences, pk=sequence_id)


def step_for(user: User, task_id: int, position: int) -> Step:
    return get_object_or_404(Step, task=task_for(user, task_id), position=position)


def question_for(user: User, question_id: int) -> Question:
    questions = Question.objects.visible_to(user).select_related(
        "task__project", "step", "run", "answered_by"
    )
    return get_object_or_404(questions, pk=question_id)

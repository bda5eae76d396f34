"""Rows for tests, ready to be looked at: each factory makes what its row needs and nothing else."""

from __future__ import annotations

import uuid
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Membership,
    Project,
    Question,
    Reason,
    Run,
    Sequence,
    Step,
    Task,
    User,
    WorkerBeat,
)

ROUNDING = {
    "question": "How should half cents be rounded?",
    "header": "Rounding",
    "multiSelect": False,
    "options": [
        {"label": "Half to even", "description": "As banks do.", "preview": "0.125 -> 0.12"},
        {"label": "Half up", "description": "As at school.", "preview": ""},
    ],
}
COLUMNS = {
    "question": "Which columns?",
    "header": "Columns",
    "multiSelect": True,
    "options": [{"label": "Name", "description": ""}, {"label": "E-mail", "description": ""}],
}
FILE_NAME = {"question": "What should the file be called?", "header": "Name", "options": []}


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"user{n}")


class ProjectFactory(DjangoModelFactory[Project]):
    class Meta:
        model = Project

    name = factory.Sequence(lambda n: f"project-{n}")
    source = "/nowhere/project"
    branch = "main"


class MembershipFactory(DjangoModelFactory[Membership]):
    class Meta:
        model = Membership

    user = factory.SubFactory(UserFactory)
    project = factory.SubFactory(ProjectFactory)


class SequenceFactory(DjangoModelFactory[Sequence]):
    class Meta:
        model = Sequence

    project = factory.SubFactory(ProjectFactory)
    slug = factory.Sequence(lambda n: f"sequence-{n}")
    folder = factory.LazyAttribute(lambda sequence: f"tasks/{sequence.slug}")
    branch = factory.LazyAttribute(lambda sequence: f"cat-herder/{sequence.slug}")


class TaskFactory(DjangoModelFactory[Task]):
    """A task with the steps plan and implement, or those given as `steps=("only",)`."""

    class Meta:
        model = Task
        skip_postgeneration_save = True

    project = factory.SubFactory(ProjectFactory)
    slug = factory.Sequence(lambda n: f"task-{n}")
    title = factory.Sequence(lambda n: f"Task number {n}")
    text = "# Round the totals\n"
    body = "# Round the totals\n"
    pipeline = "default"
    threshold = 3
    branch = factory.LazyAttribute(lambda task: f"cat-herder/{task.slug}")
    phase = Phase.PENDING

    @factory.post_generation
    def steps(self: Any, create: bool, names: Any, **kwargs: Any) -> None:
        for position, name in enumerate(names or ("plan", "implement"), start=1):
            Step.objects.create(task=self, position=position, name=name, config={}, plan="# Plan\n")


class RunFactory(DjangoModelFactory[Run]):
    """The first run of the task's first step, or of the step given."""

    class Meta:
        model = Run

    class Params:
        task = factory.SubFactory(TaskFactory, phase=Phase.RUNNING)

    step = factory.LazyAttribute(lambda run: run.task.steps.first())
    number = 1
    reason = Reason.FIRST
    session_id = factory.LazyFunction(uuid.uuid4)


class QuestionFactory(DjangoModelFactory[Question]):
    """An open question; its task and step wait for the answer."""

    class Meta:
        model = Question
        skip_postgeneration_save = True

    task = factory.SubFactory(TaskFactory, phase=Phase.WAITING_FOR_INPUT)
    run = factory.LazyAttribute(lambda question: RunFactory(task=question.task))
    step = factory.LazyAttribute(lambda question: question.run.step)
    number = 1
    way = "AskUserQuestion"
    tool_use_id = factory.Sequence(lambda n: f"toolu_{n}")
    items = factory.LazyFunction(lambda: [ROUNDING])
    asked_at = factory.LazyFunction(timezone.now)

    @factory.post_generation
    def _waiting(self: Any, create: bool, extracted: Any, **kwargs: Any) -> None:
        Step.objects.filter(pk=self.step_id).update(phase=Phase.WAITING_FOR_INPUT)
        self.step.refresh_from_db()


class WorkerBeatFactory(DjangoModelFactory[WorkerBeat]):
    """A worker that was heard of just now."""

    class Meta:
        model = WorkerBeat

    host = "here"
    pid = factory.Sequence(lambda n: 1000 + n)
    slots = 4
    started_at = factory.LazyFunction(timezone.now)
    seen_at = factory.LazyFunction(timezone.now)

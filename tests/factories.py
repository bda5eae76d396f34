"""Rows for tests, ready to be looked at: each factory makes what its row needs and nothing else."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone
from factory import declarations
from factory.django import DjangoModelFactory
from factory.helpers import post_generation

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Asked,
    AskedBy,
    Decision,
    MemberGroup,
    Membership,
    Project,
    Question,
    Reason,
    Review,
    ReviewThread,
    ReviewVerdict,
    Run,
    Sequence,
    Step,
    Task,
    ThreadComment,
    User,
    WorkerBeat,
)

ROUNDING: dict[str, Any] = {
    "question": "How should half cents be rounded?",
    "header": "Rounding",
    "multiSelect": False,
    "options": [
        {"label": "Half to even", "description": "As banks do.", "preview": "0.125 -> 0.12"},
        {"label": "Half up", "description": "As at school.", "preview": ""},
    ],
}
COLUMNS: dict[str, Any] = {
    "question": "Which columns?",
    "header": "Columns",
    "multiSelect": True,
    "options": [{"label": "Name", "description": ""}, {"label": "E-mail", "description": ""}],
}
FILE_NAME: dict[str, Any] = {"question": "What should the file be called?", "header": "Name", "options": []}


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User
        skip_postgeneration_save = True

    username = declarations.Sequence(lambda n: f"user{n}")


class ProjectFactory(DjangoModelFactory[Project]):
    class Meta:
        model = Project

    name = declarations.Sequence(lambda n: f"project-{n}")
    source = "/nowhere/project"
    branch = "main"


class MembershipFactory(DjangoModelFactory[Membership]):
    class Meta:
        model = Membership

    user = declarations.SubFactory(UserFactory)
    project = declarations.SubFactory(ProjectFactory)


class SequenceFactory(DjangoModelFactory[Sequence]):
    class Meta:
        model = Sequence

    project = declarations.SubFactory(ProjectFactory)
    slug = declarations.Sequence(lambda n: f"sequence-{n}")
    folder = declarations.LazyAttribute(lambda sequence: f"tasks/{sequence.slug}")
    branch = declarations.LazyAttribute(lambda sequence: f"cat-herder/{sequence.slug}")


class TaskFactory(DjangoModelFactory[Task]):
    """A task with the steps plan and implement, or those given as `steps=("only",)`."""

    class Meta:
        model = Task
        skip_postgeneration_save = True

    project = declarations.SubFactory(ProjectFactory)
    slug = declarations.Sequence(lambda n: f"task-{n}")
    title = declarations.Sequence(lambda n: f"Task number {n}")
    text = "# Round the totals\n"
    body = "# Round the totals\n"
    pipeline = "default"
    threshold = 3
    branch = declarations.LazyAttribute(lambda task: f"cat-herder/{task.slug}")
    phase = Phase.PENDING

    @post_generation
    def steps(self: Any, create: bool, names: Any, **kwargs: Any) -> None:
        for position, name in enumerate(names or ("plan", "implement"), start=1):
            config = {"name": name, "command": "implement"}
            Step.objects.create(task=self, position=position, name=name, config=config, plan="# Plan\n")


class RunFactory(DjangoModelFactory[Run]):
    """The first run of the task's first step, or of the step given."""

    class Meta:
        model = Run

    class Params:
        task = declarations.SubFactory(TaskFactory, phase=Phase.RUNNING)

    step = declarations.LazyAttribute(lambda run: run.task.steps.first())
    number = 1
    reason = Reason.FIRST
    session_id = declarations.LazyFunction(uuid.uuid4)


class ReviewFactory(DjangoModelFactory[Review]):
    """A sent review: a comment."""

    class Meta:
        model = Review

    task = declarations.SubFactory(TaskFactory, phase=Phase.DONE)
    author = declarations.SubFactory(UserFactory)
    number = declarations.Sequence(lambda n: n + 1)
    verdict = ReviewVerdict.COMMENT
    body = "Nearly there."
    sent_at = declarations.LazyFunction(timezone.now)


class ThreadFactory(DjangoModelFactory[ReviewThread]):
    """Thread 1 of a task, about the whole result."""

    class Meta:
        model = ReviewThread
        skip_postgeneration_save = True

    task = declarations.SubFactory(TaskFactory, phase=Phase.DONE)
    review = declarations.SubFactory(ReviewFactory, task=declarations.SelfAttribute("..task"))
    number = 1

    @post_generation
    def comments(self: Any, create: bool, text: Any, **kwargs: Any) -> None:
        ThreadComment.objects.create(thread=self, author=self.review.author, text=text or "Why this?")


class QuestionFactory(DjangoModelFactory[Question]):
    """An open question; its task and step wait for the answer."""

    class Meta:
        model = Question
        skip_postgeneration_save = True

    task = declarations.SubFactory(TaskFactory, phase=Phase.WAITING_FOR_INPUT)
    run = declarations.LazyAttribute(lambda question: RunFactory.create(task=question.task))
    step = declarations.LazyAttribute(lambda question: question.run.step)
    number = 1
    way = "AskUserQuestion"
    tool_use_id = declarations.Sequence(lambda n: f"toolu_{n}")
    items = declarations.LazyFunction(lambda: [ROUNDING])
    asked_at = declarations.LazyFunction(timezone.now)

    @post_generation
    def _waiting(self: Any, create: bool, extracted: Any, **kwargs: Any) -> None:
        Step.objects.filter(pk=self.step_id).update(phase=Phase.WAITING_FOR_INPUT)
        self.step.refresh_from_db()


class AskedFactory(DjangoModelFactory[Asked]):
    """An open question that is asked of the user who started its task."""

    class Meta:
        model = Asked

    question = declarations.SubFactory(QuestionFactory)
    user = declarations.SubFactory(UserFactory)
    asked_by = AskedBy.STARTER
    why = "started the task"
    at = declarations.LazyFunction(timezone.now)


class MemberGroupFactory(DjangoModelFactory[MemberGroup]):
    """A group of the users that are given as `members=(…)`."""

    class Meta:
        model = MemberGroup
        skip_postgeneration_save = True

    project = declarations.SubFactory(ProjectFactory)
    name = declarations.Sequence(lambda n: f"group-{n}")

    @post_generation
    def members(self: Any, create: bool, users: Any, **kwargs: Any) -> None:
        self.members.add(*(users or ()))


class DecisionFactory(DjangoModelFactory[Decision]):
    """An active decision of the whole project."""

    class Meta:
        model = Decision

    project = declarations.SubFactory(ProjectFactory)
    number = declarations.LazyAttribute(lambda one: one.project.decisions.count() + 1)
    statement = declarations.Sequence(lambda n: f"Money is stored in cents ({n}).")
    decided_by = declarations.SubFactory(UserFactory)
    decided_at = declarations.LazyFunction(timezone.now)


class WorkerBeatFactory(DjangoModelFactory[WorkerBeat]):
    """A worker that was heard of just now."""

    class Meta:
        model = WorkerBeat

    host = "here"
    pid = declarations.Sequence(lambda n: 1000 + n)
    slots = 4
    started_at = declarations.LazyFunction(timezone.now)
    seen_at = declarations.LazyFunction(timezone.now)

"""Every list of the API asks the database as often for many rows as for one (W5)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.api.app import document
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Delivery,
    EventKind,
    Notice,
    Project,
    Publication,
    Question,
    Role,
    Scope,
    Step,
    Target,
    Task,
    Transition,
    User,
)
from tasks_app.services.accounts import make_token
from tasks_app.services.projects.members import invite
from tasks_app.services.projects.projects import add_project
from tests.api import Script
from tests.factories import (
    DecisionFactory,
    MemberGroupFactory,
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    ThreadFactory,
    UserFactory,
)
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import ONE_STEP

pytestmark = pytest.mark.django_db

#: These list no rows.
IN_THE_REPOSITORY = {"list_pipelines", "list_files", "list_folders"}


@pytest.fixture
def question(tmp_path: Path, settings: Any) -> Question:
    settings.DATA_DIR = tmp_path / "data"
    source = GitRepository.make(tmp_path / "source", **{"cat-herder.yaml": ONE_STEP})
    return QuestionFactory.create(task__project=add_project("shop", str(source.path)))


def more(project: Project, task: Task) -> None:
    """One more of everything that is listed."""
    MembershipFactory.create(project=ProjectFactory.create())
    MembershipFactory.create(project=project)
    MemberGroupFactory.create(project=project, members=(UserFactory.create(),))
    sequence = SequenceFactory.create(project=project, created_by=UserFactory.create())
    asked = QuestionFactory.create(
        task__project=project,
        task__sequence=sequence,
        task__created_by=UserFactory.create(),
        claimed_by=UserFactory.create(),
        claimed_at=timezone.now(),
    )
    TaskFactory.create(project=project, sequence=sequence, file="02.md")
    who = f"somebody-{sequence.pk}@example.org"
    invite(project, who, Role.VIEWER, by=acting(UserFactory.create(is_superuser=True)))
    position = task.steps.count() + 1
    step = Step.objects.create(task=task, position=position, name=f"step-{position}", config={})
    admin = User.objects.get(tokens__name="script")
    move = Transition.objects.create(task=task, source="running", target="waiting_for_input")
    Notice.objects.create(user=admin, task=task, transition=move, event_type="question")
    target = Target.objects.create(project=project, medium="chat", name="chat", event_types=["done"])
    Delivery.objects.create(
        target=target, transition=move, medium="chat", event_type="failed", due_at=timezone.now()
    )
    make_token(f"another-{sequence.pk}", [Scope.READ], by=acting(admin), projects=[project])
    ThreadFactory.create(task=task, number=task.threads.count() + 1)
    DecisionFactory.create(project=project, question=asked)
    Publication.objects.create(
        task=task, commit="c", url="u", branch="b", by=admin, state="refused", ended_at=timezone.now()
    )
    for run in (asked.run, RunFactory.create(step=step)):
        append_one(run, EventKind.TEXT, {"text": "hello"})


def test_a_list_asks_as_often_for_many_rows_as_for_one(question: Question, subtests: pytest.Subtests) -> None:
    script, task = Script(UserFactory.create(is_superuser=True)), question.task
    known = {"project": task.project.name, "task_id": task.pk}
    lists = {
        path["get"]["operationId"]: re.sub(r"{(\w+)}", lambda found: str(known[found[1]]), address)
        for address, path in document()["paths"].items()
        if "get" in path and path["get"]["operationId"].startswith("list_")
    }

    def asked(name: str) -> tuple[int, int]:
        with CaptureQueriesContext(connection) as queries:
            return len(script.get(lists[name].removeprefix("/api/v1")).json()["items"]), len(queries)

    more(task.project, task)
    script.get("/me")  # the first use of a token is written down
    before = {name: asked(name) for name in lists}
    for _ in range(4):
        more(task.project, task)
    for name, (rows, once) in before.items():
        with subtests.test(name):
            many, again = asked(name)
            assert again == once, f"{rows} rows: {once}; {many} rows: {again}"
            assert many > rows or name in IN_THE_REPOSITORY

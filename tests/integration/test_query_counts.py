"""What a page costs does not depend on how much there is: every address, and things of the API (W2, W5)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.history.audit import record
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Action,
    BrowserSession,
    Decision,
    DecisionEvent,
    Delivery,
    EventKind,
    EventType,
    Invitation,
    Medium,
    Notice,
    Project,
    Question,
    Scope,
    Target,
    Task,
    Transition,
    User,
)
from tasks_app.services.accounts import make_token
from tests.addresses import NAMES, NOT_THERE, POST_ONLY, address, text_of
from tests.api import Script
from tests.browser import signed_in
from tests.databases import undone
from tests.factories import (
    AskedFactory,
    DecisionFactory,
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
)
from tests.integration.conftest import Manage
from tests.people import acting

pytestmark = pytest.mark.django_db

LOOKED_AT = sorted(set(NAMES) - POST_ONLY - NOT_THERE)
#: Things of the API; its lists are looked at in test_api_lists.
THINGS = ("/tasks/{task}", "/sequences/{sequence}", "/usage")

numbers = count(1)


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, is_staff=True, email="ada@example.org")


@pytest.fixture
def question() -> Question:
    """A question of a sequence's task with a log."""
    project = ProjectFactory.create(name="shop")
    there = {"project": project, "sequence": SequenceFactory.create(project=project), "file": "01.md"}
    return QuestionFactory.create(task=TaskFactory.create(phase=Phase.WAITING_FOR_INPUT, **there))


def more(question: Question, admin: User) -> None:
    """One more row of everything that a page may list."""
    task, name = question.task, f"more-{next(numbers)}"
    project, sequence = task.project, task.sequence
    MembershipFactory.create(project=project)
    MembershipFactory.create(user=admin)
    SequenceFactory.create(project=project)
    RunFactory.create(step=task.steps.last(), number=next(numbers), model=name)
    append_one(question.run, EventKind.TEXT, {"text": "hello"})
    asked = QuestionFactory.create(task=task, run=question.run, number=next(numbers))
    AskedFactory.create(question=question, by=UserFactory.create())
    AskedFactory.create(question=asked, user=admin, by=UserFactory.create())
    for phase in Phase:
        other = TaskFactory.create(
            project=project, phase=phase, created_by=UserFactory.create(), pipeline=name
        )
        RunFactory.create(task=other, model=name)
    TaskFactory.create(project=project, sequence=sequence, phase=Phase.DONE, file=f"{name}.md")
    QuestionFactory.create(task__project=project)
    moved = Transition.objects.create(task=task, source=Phase.RUNNING, target=Phase.WAITING_FOR_INPUT)
    Notice.objects.create(user=admin, task=task, transition=moved, event_type=EventType.QUESTION)
    target = Target.objects.create(
        project=project, medium=Medium.WEBHOOK, name=name, encrypted_url="x", shown="y"
    )
    told = {"event_type": EventType.QUESTION, "due_at": timezone.now()}
    Delivery.objects.create(transition=moved, medium=Medium.WEBHOOK, target=target, **told)
    Delivery.objects.create(transition=moved, medium=Medium.EMAIL, user=admin, **told)
    Invitation.objects.create(
        project=project, email=f"{name}@example.org", token_hash=name, invited_by=UserFactory.create()
    )
    make_token(name, [Scope.READ], by=acting(admin), projects=[project])
    BrowserSession.objects.create(
        session_key=uuid.uuid4().hex, user=admin, expire_date=timezone.now() + timedelta(days=1)
    )
    record(Action.TASK_STARTED, by=admin, task=task)
    _one_more_decision(project, task, question, admin)


def _one_more_decision(project: Project, task: Task, question: Question, admin: User) -> None:
    """One more decision to review, of another project as well, and one more event of the first."""
    for of in (project, ProjectFactory.create()):
        one = DecisionFactory.create(
            project=of,
            question=question,
            replaces=Decision.objects.filter(number=1).first(),
            review_reason="stale",
        )
        DecisionFactory.create(project=of, exception_to=Decision.objects.first())
        DecisionEvent.objects.create(decision=one, kind="stale")
    first = Decision.objects.get(project=project, number=1)
    DecisionEvent.objects.create(
        decision=first, kind="followed", user=UserFactory.create(), task=TaskFactory.create(project=project)
    )


def cost(client: Any, where: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        page = client.get(where)
        text_of(page)
    assert page.status_code in (200, 302), where
    return len(captured)


def cost_when_warm(client: Any, where: str) -> int:
    """Return the queries of a second look; the first fills caches. What looking changes is undone."""
    with undone():
        cost(client, where)
        return cost(client, where)


def test_a_page_asks_no_more_for_more_rows(
    question: Question, admin: User, subtests: pytest.Subtests
) -> None:
    more(question, admin)
    places = {name: address(name, question) for name in LOOKED_AT}
    few = {name: cost_when_warm(signed_in(admin), where) for name, where in places.items()}
    for _ in range(3):
        more(question, admin)
    for name, where in places.items():
        with subtests.test(name):
            assert cost_when_warm(signed_in(admin), where) <= few[name]


def test_a_thing_of_the_api_asks_no_more_for_more_rows(
    question: Question, admin: User, subtests: pytest.Subtests
) -> None:
    more(question, admin)
    script = Script(admin)
    places = [thing.format(task=question.task_id, sequence=question.task.sequence_id) for thing in THINGS]
    few = {where: cost_when_warm(script, where) for where in places}
    for _ in range(3):
        more(question, admin)
    for where in places:
        with subtests.test(where):
            assert cost_when_warm(script, where) <= few[where]


def test_d7_decisions_as_json_ask_no_more_for_more_rows(
    question: Question, admin: User, manage: Manage
) -> None:
    more(question, admin)

    def looked() -> tuple[int, str]:
        with CaptureQueriesContext(connection) as captured:
            code, out, err = manage("decisions", "--project", "shop", "--json", "--as", admin.username)
        assert code == 0, err
        return len(captured), out

    looked()  # fills caches
    few, _ = looked()
    for _ in range(3):
        more(question, admin)
    many, out = looked()
    assert many == few and out.count('"followed"') == 4

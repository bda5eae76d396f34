"""No page answers a stranger, and what you may not see is 404 (W1): every address there is."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from tasks_app.events.append import append_one
from tasks_app.models import EventKind, Question, Role, User
from tasks_app.views.urls import urlpatterns
from tests.factories import MembershipFactory, QuestionFactory, SequenceFactory, UserFactory

pytestmark = pytest.mark.django_db

OPEN_TO_ALL = {"login"}
POST_ONLY = {"logout", "task_start", "task_cancel", "task_go_on", "question_answer"} | {
    f"sequence_{action}" for action in ("start", "cancel", "go_on")
}
#: Addresses of one task or question, against those of the portal, which show everybody their own.
NAMES = sorted(str(pattern.name) for pattern in urlpatterns if isinstance(pattern, URLPattern))


@pytest.fixture
def question() -> Question:
    question = QuestionFactory()
    task = question.task
    task.sequence = SequenceFactory(project=task.project, phase=task.phase)
    task.save(update_fields=["sequence"])
    append_one(question.run, EventKind.TEXT, {"text": "hello"})
    return question


def address(name: str, question: Question) -> str:
    pattern = next(pattern for pattern in urlpatterns if pattern.name == name)
    values: dict[str, Any] = {
        "task_id": question.task_id,
        "question_id": question.pk,
        "project_id": question.task.project_id,
        "sequence_id": question.task.sequence_id,
        "position": 1,
        "kind": "reasoning",
    }
    return reverse(name, kwargs={key: values[key] for key in pattern.pattern.converters})


def is_about_one(name: str, question: Question) -> bool:
    return any(part.isdigit() for part in address(name, question).split("/"))


def ask(name: str, question: Question, user: User | None) -> Any:
    client = Client()
    if user:
        client.force_login(user)
    send = client.post if name in POST_ONLY else client.get
    return send(address(name, question))


def test_every_address_has_a_name() -> None:
    assert len(NAMES) == len(set(NAMES)) == len(urlpatterns) and "None" not in NAMES


@pytest.mark.parametrize("name", sorted(set(NAMES) - OPEN_TO_ALL - {"logout"}))
def test_a_stranger_is_sent_to_the_login(name: str, question: Question) -> None:
    page = ask(name, question, None)
    assert page.status_code == 302 and page["Location"].startswith("/login/?next=/")


@pytest.mark.parametrize("name", NAMES)
def test_an_outsider_learns_nothing_of_other_projects(name: str, question: Question) -> None:
    page = ask(name, question, UserFactory())
    if is_about_one(name, question):
        assert page.status_code == 404
    else:
        assert page.status_code in (200, 204, 302)
        assert question.headline not in page.text and question.task.title not in page.text
        assert str(question.task.sequence) not in page.text


@pytest.mark.parametrize("name", NAMES)
def test_a_viewer_sees_everything_and_changes_nothing(name: str, question: Question) -> None:
    viewer = MembershipFactory(project=question.task.project, role=Role.VIEWER).user
    page = ask(name, question, viewer)
    if name in POST_ONLY - {"logout"}:
        assert page.status_code == 403 and "lets you look but not act" in page.text
        question.refresh_from_db()
        assert question.is_open
    else:
        assert page.status_code in (200, 204, 302)


@pytest.mark.parametrize("name", NAMES)
def test_a_member_gets_an_answer_everywhere(name: str, question: Question) -> None:
    page = ask(name, question, MembershipFactory(project=question.task.project).user)
    empty_answer = name == "question_answer"
    assert page.status_code == 400 if empty_answer else page.status_code in (200, 204, 302)


@pytest.mark.parametrize("name", sorted(POST_ONLY))
def test_nothing_happens_on_get(name: str, question: Question) -> None:
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    assert client.get(address(name, question)).status_code == 405


def test_a_viewer_cannot_create_tasks(question: Question) -> None:
    client = Client()
    client.force_login(MembershipFactory(project=question.task.project, role=Role.VIEWER).user)
    page = client.post(reverse("task_new"), {"project": question.task.project_id, "text": "# Do it"})
    assert page.status_code == 403


def test_a_log_of_an_unknown_kind_is_404(question: Question) -> None:
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    assert client.get(f"/tasks/{question.task_id}/steps/1/secrets.log").status_code == 404
    assert client.get(f"/tasks/{question.task_id}/steps/9/raw.log").status_code == 404

"""The audit log: who did what when, append-only, taken out as it is filtered (W4)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.history.audit import ActionOrigin, acting_from, record
from tasks_app.models import Action, AuditEntry, Channel, Project, Question, User
from tasks_app.services.projects.projects import remove_project
from tasks_app.services.questions.answers import Reply, answer_question
from tasks_app.services.tasks import cancel_task, resume_task, start_task
from tests.addresses import text_of
from tests.factories import MembershipFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def member(question: Question) -> User:
    return MembershipFactory.create(project=question.task.project).user


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root"))
    return client


def actions() -> list[str]:
    return list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))


def test_an_answer_is_recorded_with_who_what_and_from_where(question: Question, member: User) -> None:
    with acting_from(ActionOrigin(via=Channel.WEB, ip_address="192.0.2.7")):
        answer_question(question, Reply.to(question, "Half up"), by=acting(member), via=Channel.WEB)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.task, entry.project) == (
        Action.ANSWERED, member, question.task, question.task.project,
    )  # fmt: skip
    assert (entry.subject, entry.via, entry.ip_address) == (question.headline, "web", "192.0.2.7")


def test_an_answer_that_came_too_late_leaves_no_entry(question: Question, member: User) -> None:
    for _ in range(2):
        answer_question(question, Reply.to(question, "Half up"), by=acting(member), via=Channel.WEB)
    assert actions() == [Action.ANSWERED]


def test_the_life_of_a_task_is_recorded_once_each() -> None:
    task = TaskFactory.create()
    member = MembershipFactory.create(project=task.project).user
    start_task(task, by=acting(member))
    start_task(task, by=acting(member))
    cancel_task(task, by=acting(member))
    task.refresh_from_db()
    resume_task(task, by=acting(member))
    assert actions() == [Action.TASK_STARTED, Action.TASK_CANCELLED, Action.TASK_WENT_ON]


def test_what_is_recorded_cannot_be_changed_or_deleted() -> None:
    entry = record(Action.LOGGED_IN, by=UserFactory.create())
    for attempt in (
        entry.save,
        entry.delete,
        AuditEntry.objects.all().delete,
        lambda: AuditEntry.objects.update(subject="nothing"),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            attempt()


def test_entries_outlive_their_project(question: Question) -> None:
    name = question.task.project.name
    record(Action.TASK_CREATED, task=question.task)
    question.task.questions.all().delete()
    question.run.step.task.steps.all().delete()
    remove_project(Project.objects.get(), by=acting(User.objects.create_superuser("root")))
    assert [str(entry.project_name) for entry in AuditEntry.objects.all()] == [name, name]


def test_what_the_list_shows_is_what_is_exported(root: Client) -> None:
    for name in ("=HYPERLINK(1)", "other"):
        record(Action.LOGIN_FAILED, actor_name=name, subject=name)
    record(Action.EXPORTED, subject="not asked for")
    response: Any = root.get(reverse("audit_export"), {"action": Action.LOGIN_FAILED})
    assert response.is_async, "else the server would read all of it before it sends the first line"
    text = text_of(response)
    assert text.count("login_failed") == 2
    assert "not asked for" not in text
    assert ',"\'=HYPERLINK(1)",' in text  # and not as a formula


def test_a_request_says_that_it_came_from_the_web(client: Client, question: Question, member: User) -> None:
    client.force_login(member)
    client.post(reverse("task_cancel", args=[question.task_id]))
    assert AuditEntry.objects.get().via == "web"
    assert AuditEntry.objects.get().ip_address == "127.0.0.1"

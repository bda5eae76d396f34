"""Q2: whoever sees a task may watch it, and is notified as if its questions were asked of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.models import (
    Action,
    AskedBy,
    AuditEntry,
    Delivery,
    Membership,
    Notice,
    Question,
    Role,
    Task,
    Transition,
    User,
)
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.tasks import watch_task
from tests.addresses import text_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import AskedFactory, MembershipFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


def member(question: Question, username: str, role: str = Role.MEMBER) -> User:
    user: User = UserFactory.create(
        username=username, first_name=username.capitalize(), email=f"{username}@example.org"
    )
    MembershipFactory.create(project=question.task.project, user=user, role=role)
    return user


@pytest.fixture
def bob(question: Question) -> User:
    """He is asked, by name."""
    user = member(question, "bob")
    AskedFactory.create(question=question, user=user, asked_by=AskedBy.RULE)
    return user


def told() -> set[tuple[str, str]]:
    create_notifications()
    notices = {(one.user.username, "page") for one in Notice.objects.select_related("user")}
    return notices | {
        (one.user.username, "email") for one in Delivery.objects.filter(medium="email") if one.user
    }


def announce(question: Question) -> None:
    Transition.objects.create(task=question.task, source="running", target="waiting_for_input")


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
def test_who_watches_hears_of_questions_that_are_asked_of_others(
    question: Question, bob: User, settings: Any, role: str
) -> None:
    """Q2"""
    settings.SENDS_EMAIL = True
    ann, _ = member(question, "ann", role), member(question, "eve")
    watch_task(question.task, by=acting(ann))
    announce(question)
    assert told() == {("bob", "page"), ("bob", "email"), ("ann", "page"), ("ann", "email")}


def test_who_watches_hears_of_a_failure(question: Question, bob: User) -> None:
    """Q2"""
    ann = member(question, "ann", Role.VIEWER)
    watch_task(question.task, by=acting(ann))
    Question.objects.update(state="withdrawn")
    Task.objects.update(phase=Phase.FAILED)
    Transition.objects.create(task=question.task, source="running", target="failed")
    assert ("ann", "page") in told()


def test_who_ends_it_or_does_not_see_the_project_any_more_hears_nothing(
    question: Question, bob: User
) -> None:
    """Q2"""
    ann, cat = member(question, "ann"), member(question, "cat")
    for user in (ann, cat):
        watch_task(question.task, by=acting(user))
    watch_task(question.task, by=acting(ann), undo=True)
    Membership.objects.filter(user=cat).delete()
    announce(question)
    assert {name for name, _ in told()} == {"bob"}


def test_it_stands_in_the_history_once_however_often_it_is_said(question: Question) -> None:
    """Q2"""
    ann = member(question, "ann")
    for undo in (False, False, True, True):
        watch_task(question.task, by=acting(ann), undo=undo)
    done = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert done == [Action.TASK_WATCHED, Action.TASK_UNWATCHED]
    log = text_of(Script(ann).get(f"/tasks/{question.task_id}/steps/{question.step.position}/logs/output"))
    assert "Ann watches the task" in log and "Ann no longer watches the task" in log


def test_a_button_of_the_page_begins_and_ends_it(question: Question) -> None:
    """Q2: also for a viewer; whose task it is needs none."""
    ann = member(question, "ann", Role.VIEWER)
    client, page = signed_in(ann), reverse("task", args=[question.task_id])
    url = reverse("task_watch", args=[question.task_id])
    assert 'data-watched="false"' in client.get(page).text
    assert client.post(url).status_code == 302 and list(question.task.watchers.all()) == [ann]
    shown = client.get(page).text
    assert 'data-watched="true"' in shown
    assert "Watched by" in client.get(reverse("task_details", args=[question.task_id])).text
    client.post(url, {"undo": "yes"})
    assert not question.task.watchers.exists()
    Task.objects.update(created_by=ann)
    assert "do-watch" not in client.get(page).text


def test_who_does_not_see_the_task_cannot_watch_it(question: Question) -> None:
    """Q2"""
    eve = UserFactory.create()
    assert signed_in(eve).post(reverse("task_watch", args=[question.task_id])).status_code == 404
    assert Script(eve).send("put", f"/tasks/{question.task_id}/watch").status_code == 404


def test_the_api_watches_and_says_who_does(question: Question) -> None:
    """Q2"""
    ann = member(question, "ann")
    script, url = Script(ann), f"/tasks/{question.task_id}"
    for method, expected in (("put", ["ann"]), ("put", ["ann"]), ("delete", []), ("delete", [])):
        said = script.send(method, f"{url}/watch")
        assert said.status_code == 200
        found = [one["username"] for one in said.json()["watchers"]]
        assert found == expected == [one["username"] for one in script.get(url).json()["watchers"]]

"""No page answers a stranger, and what you may not see is 404 (W1): every address there is.

The addresses are those of `tests/addresses.py`, which finds them in the URL configuration. The socket's
walk is in test_live_socket, that of the admin pages in test_admin_audit.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.history.events.blocks import append_one
from tasks_app.models import EventKind, Question, Role, User
from tests.addresses import (
    COUNT,
    FOR_MEMBERS,
    FOR_ONESELF,
    FOR_SITE_ADMINS,
    FORMS,
    NAMES,
    NOT_THERE,
    OPEN_TO_ALL,
    PATTERNS,
    POST_ONLY,
    address,
    is_about_one,
    text_of,
)
from tests.browser import signed_in
from tests.databases import undone
from tests.factories import (
    DecisionFactory,
    MembershipFactory,
    QuestionFactory,
    SequenceFactory,
    ThreadFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db


def make_question() -> Question:
    """A question with everything around it that an address can be about."""
    question = QuestionFactory.create()
    task = question.task
    task.sequence = SequenceFactory.create(project=task.project, phase=task.phase)
    task.save(update_fields=["sequence"])
    append_one(question.run, EventKind.TEXT, {"text": "hello"})
    ThreadFactory.create(task=task)
    DecisionFactory.create(project=task.project)
    return question


@pytest.fixture
def question() -> Question:
    return make_question()


def ask(name: str, question: Question, user: User | None) -> Any:
    client = Client()
    if user:
        client.force_login(user)
    send = client.post if name in POST_ONLY else client.get
    return send(address(name, question))


def answers(name: str, page: Any) -> bool:
    """Whether somebody who may see everything of a project got an answer."""
    if name in FOR_SITE_ADMINS:
        return bool(page.status_code == 403)
    return page.status_code in ((200, 302, 404) if name in NOT_THERE else (200, 204, 302))


def test_every_address_has_a_name_and_is_known_to_the_walks() -> None:
    assert len(NAMES) == COUNT
    for described in (OPEN_TO_ALL, POST_ONLY, FORMS, NOT_THERE):
        assert described <= set(PATTERNS)


def test_an_anonymous_visitor_is_sent_to_the_login(question: Question, subtests: pytest.Subtests) -> None:
    for name in sorted(set(NAMES) - OPEN_TO_ALL):
        with subtests.test(name), undone():
            page = ask(name, question, None)
            assert page.status_code == 302 and page["Location"].startswith("/login/?next=/")


def test_pages_before_the_login_reveal_nothing(question: Question, subtests: pytest.Subtests) -> None:
    for name in sorted(OPEN_TO_ALL):
        with subtests.test(name), undone():
            page = ask(name, question, None)
            assert page.status_code in (200, 302, 404)
            assert not page.get("Location", "").startswith("/login/?next=")
            assert question.headline not in page.text and question.task.project.name not in page.text


def test_an_outsider_learns_nothing_of_other_projects(question: Question, subtests: pytest.Subtests) -> None:
    outsider = UserFactory.create()
    for name in NAMES:
        with subtests.test(name), undone():
            page = ask(name, question, outsider)
            if is_about_one(name):
                assert page.status_code == 404
            else:
                assert answers(name, page)
                text = text_of(page)
                assert question.headline not in text and question.task.title not in text
                assert str(question.task.sequence) not in text


def test_a_viewer_sees_everything_and_changes_nothing(question: Question, subtests: pytest.Subtests) -> None:
    viewer = MembershipFactory.create(project=question.task.project, role=Role.VIEWER).user
    for name in NAMES:
        with subtests.test(name), undone():
            page = ask(name, question, viewer)
            if name in POST_ONLY - FOR_ONESELF - NOT_THERE and is_about_one(name):
                assert page.status_code == 403 and re.search("does not allow this", page.text)
                question.refresh_from_db()
                assert question.is_open
            else:
                assert answers(name, page)


def test_a_member_gets_an_answer_everywhere(question: Question, subtests: pytest.Subtests) -> None:
    member = MembershipFactory.create(project=question.task.project).user
    for name in NAMES:
        with subtests.test(name), undone():
            page = ask(name, question, member)
            if name in ("question_answer", "question_decide"):  # with nothing in them
                assert page.status_code == 400
            elif name in POST_ONLY - FOR_MEMBERS - FOR_ONESELF - NOT_THERE and is_about_one(name):
                assert page.status_code == 403
            else:
                assert answers(name, page)


def test_nothing_happens_on_get(question: Question, subtests: pytest.Subtests) -> None:
    admin = UserFactory.create(is_superuser=True)
    for name in sorted(POST_ONLY):
        with subtests.test(name), undone():
            page = signed_in(admin).get(address(name, question))
            if re.match(r"/(questions|tasks|sequences|projects)/[0-9]+/", path := address(name, question)):
                # whoever reloads what it showed gets the page of the thing
                assert page.status_code == 302 and path.startswith(page["Location"])
                continue
            assert page.status_code == 405 and page["Allow"] == "POST"
            assert "only accepts form submissions" in page.text


def test_a_viewer_cannot_create_tasks(question: Question) -> None:
    client = signed_in(MembershipFactory.create(project=question.task.project, role=Role.VIEWER).user)
    page = client.post(reverse("task_new"), {"project": question.task.project_id, "text": "# Do it"})
    assert page.status_code == 403


def test_a_log_of_an_unknown_kind_is_404(question: Question) -> None:
    client = signed_in(UserFactory.create(is_superuser=True))
    assert client.get(f"/tasks/{question.task_id}/steps/1/secrets.log").status_code == 404
    assert client.get(f"/tasks/{question.task_id}/steps/9/raw.log").status_code == 404

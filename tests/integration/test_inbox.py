"""The inbox (W2, H5): what became of questions, filters in the address, pages, and what an empty one says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.models import Question, QuestionKind, QuestionState, User
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, UserFactory

pytestmark = pytest.mark.django_db


def asked(text: str, **facts: Any) -> Question:
    return QuestionFactory.create(items=[{"question": text}], **facts)


def answered(text: str, by: User, **facts: Any) -> Question:
    done = {"state": QuestionState.ANSWERED, "answered_at": timezone.now(), "answered_via": "web"}
    return asked(text, answered_by=by, answers={text: "Indeed."}, **done, **facts)


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, username="root")


def look(user: User, **query: Any) -> str:
    client = signed_in(user)
    page = client.get(reverse("inbox"), query)
    assert page.status_code == 200
    return str(page.text)


def cards(page: str) -> int:
    return page.count('<article class="card')


def test_each_state_has_its_tab_with_a_count(admin: User) -> None:
    asked("Still open?")
    answered("Long answered?", admin)
    asked("Taken back?", state=QuestionState.WITHDRAWN)
    page = look(admin)
    assert "Still open?" in page and "Long answered?" not in page
    assert 'Open <span class="number">1</span>' in page
    done = look(admin, state="answered")
    assert "Long answered?" in done and "Indeed." in done and "Still open?" not in done
    assert "Taken back?" in look(admin, state="withdrawn")


def test_the_filters_are_in_the_address_and_stay_from_tab_to_tab(admin: User) -> None:
    old = asked("Old?", asked_at=timezone.now() - timedelta(days=3), task__created_by=admin)
    asked("New?", kind=QuestionKind.PLAN)
    ways = [{"project": old.task.project.name}, {"age": "1d"}, {"person": "mine"}, {"kind": "clarification"}]
    for query in ways:
        page = look(admin, **query)
        assert cards(page) == 1 and "Old?" in page, query
        name, value = next(iter(query.items()))
        assert f"?state=answered&amp;{name}={value}" in page
    assert cards(look(admin, step="plan")) == 2
    assert cards(look(admin, step="implement")) == 0


def test_what_a_person_answered_can_be_found(admin: User) -> None:
    answered("By root?", admin)
    answered("By another?", UserFactory.create(username="ann"))
    page = look(admin, state="answered", person="ann")
    assert "By another?" in page and "By root?" not in page
    assert '<option value="ann" selected>answered by ann</option>' in page


@pytest.mark.parametrize("state", QuestionState.values)
def test_an_empty_tab_says_what_would_stand_here(admin: User, state: str) -> None:
    page = look(admin, state=state)
    assert 'class="empty none"' in page and "Clear filters" not in page


def test_where_nothing_matches_the_filters_can_be_cleared(admin: User) -> None:
    asked("Still open?")
    page = look(admin, project="another")
    assert "No matching questions" in page and 'href="?state=open">Clear filters' in page
    assert "<summary>1 filter</summary>" in page


@pytest.mark.parametrize("garbage", ["\x00", "'; --", "x" * 5000, "%F0%9F", "\ud800"])
def test_garbage_in_the_address_is_no_error(admin: User, garbage: str) -> None:
    asked("Still open?")
    garbage = garbage.encode(errors="replace").decode()
    names = ("state", "project", "step", "kind", "age", "person", "page")
    for name in names:
        look(admin, **{name: garbage})
    look(admin, **dict.fromkeys(names, garbage))


def test_names_of_projects_steps_and_people_that_one_may_not_see_are_not_offered() -> None:
    answered("Secret?", UserFactory.create(username="secret-person"), task__project__name="secret-project")
    outsider = MembershipFactory.create().user
    page = look(outsider, state="answered")
    assert "secret-" not in page and cards(page) == 0
    assert cards(look(outsider, state="answered", project="secret-project", person="secret-person")) == 0


def test_it_pages_and_its_queries_do_not_grow(admin: User) -> None:
    client = signed_in(admin)
    counts = []
    for many in (1, 30):
        for number in range(many):
            answered(f"Number {number}?", UserFactory.create())
            QuestionFactory.create()
        for state in ("open", "answered"):
            with CaptureQueriesContext(connection) as queries:
                page = client.get(reverse("inbox"), {"state": state})
            counts.append(len(queries))
    assert counts[:2] == counts[2:]
    assert cards(page.text) == 20 and "Page 1 of 2" in page.text


def test_a_page_in_use_is_given_the_questions_that_it_lacks(admin: User) -> None:
    first, second = asked("One?"), asked("Two?")
    client = signed_in(admin)
    address, htmx = reverse("inbox"), {"HX-Request": "true"}
    part = client.get(address, {"known": ["0", str(first.pk)]}, headers=htmx).text
    assert "Two?" in part and "One?" not in part and "<html" not in part
    both = {"known": [first.pk, second.pk]}
    assert client.get(address, both, headers=htmx).status_code == 204

"""Quick search: what a person may see, found by parts of its name, with one query for each kind (W2)."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tasks_app.models import Project, User
from tasks_app.permissions import Principal
from tasks_app.services.search import FOUND, find_projects, find_questions, find_tasks
from tests.factories import MembershipFactory, ProjectFactory, QuestionFactory, TaskFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def shop() -> Project:
    project: Project = ProjectFactory.create(name="shop")
    TaskFactory.create(project=project, title="Round prices the way the cashier does")
    return project


@pytest.fixture
def ann(shop: Project) -> User:
    user: User = MembershipFactory.create(project=shop).user
    return user


@pytest.fixture
def principal(ann: User) -> Principal:
    return acting(ann)


@pytest.mark.parametrize("text", ["cashier", "PRICES round", "shop pric", "cashire", "", "roundd"])
def test_a_task_is_found_by_parts_of_its_words(principal: Principal, shop: Project, text: str) -> None:
    assert [str(task) for task in find_tasks(principal, text)] == ["Round prices the way the cashier does"]


@pytest.mark.parametrize("text", ["plum", "round plum", "%", "\x00"])
def test_what_does_not_match_is_not_found(principal: Principal, text: str, client: Client, ann: User) -> None:
    client.force_login(ann)
    page = client.get("/search/", {"q": text})
    assert page.status_code == 200
    assert "Round prices" not in page.content.decode()


def test_exact_matches_come_before_similar_ones_and_the_newest_first(
    principal: Principal, shop: Project
) -> None:
    for title in ("The cashing office", "A cashier leaves", "The newest cashier"):
        TaskFactory.create(project=shop, title=title)
    found = [str(task) for task in find_tasks(principal, "cashier")]
    assert found == [
        "The newest cashier", "A cashier leaves", "Round prices the way the cashier does",
        "The cashing office",
    ]  # fmt: skip


def test_a_task_is_found_by_its_id(principal: Principal, shop: Project) -> None:
    task = TaskFactory.create(project=shop, title="Plum")
    assert find_tasks(principal, str(task.pk))[0] == task


def test_open_questions_come_first(principal: Principal, shop: Project) -> None:
    task = shop.tasks.get()
    asked = [{"question": "Which colour?"}]
    still_open = QuestionFactory.create(task=task, items=asked)
    later = QuestionFactory.create(task=task, run=still_open.run, items=asked, number=2)
    later.state = "withdrawn"
    later.save()
    assert find_questions(principal, "colour") == [still_open, later]


def test_nothing_of_other_projects_is_found(principal: Principal, shop: Project) -> None:
    other = ProjectFactory.create(name="shop-of-others")
    QuestionFactory.create(task=TaskFactory.create(project=other, title="Round their prices"))
    assert [project.name for project in find_projects(principal, "shop")] == ["shop"]
    assert [task.project.name for task in find_tasks(principal, "round")] == ["shop"]
    assert find_questions(principal, "") == []


def test_each_kind_takes_one_bounded_query(principal: Principal, shop: Project) -> None:
    for number in range(FOUND + 3):
        QuestionFactory.create(task=TaskFactory.create(project=shop, title=f"Cashier {number}"))
    for find in (find_tasks, find_questions, find_projects):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            found = find(principal, "cashier" if find is not find_projects else "shop")
            assert len(found) <= FOUND
            assert all(str(getattr(one, "project", one)) for one in found)
        assert len(queries) == 1, find
        assert f"LIMIT {FOUND}" in queries[0]["sql"]


class TestPage:
    def test_it_works_without_javascript(self, client: Client, ann: User) -> None:
        client.force_login(ann)
        page = client.get("/search/", {"q": "round"}).content.decode()
        assert "Round prices the way the cashier does" in page
        assert "<form" in page and 'role="option"' not in page

    def test_the_dialog_gets_options(self, client: Client, ann: User) -> None:
        client.force_login(ann)
        part = client.get("/search/", {"q": "inb"}, headers={"HX-Request": "true"}).content.decode()
        assert 'role="option"' in part and 'href="/inbox/"' in part and "<html" not in part

    def test_pages_of_admins_are_for_admins(self, client: Client, ann: User, admin_user: User) -> None:
        for user, expected in ((ann, False), (admin_user, True)):
            client.force_login(user)
            part = client.get("/search/", {"q": "admin"}, headers={"HX-Request": "true"}).content.decode()
            assert ('href="/admin/"' in part) == expected

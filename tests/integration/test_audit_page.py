"""The audit log's page: entries of what one may see, filters, pages and an export (W2)."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.urls import reverse

from tasks_app.history.audit import record
from tasks_app.models import Action, AuditEntry, Project, Role, User
from tasks_app.web import audit
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, TaskFactory, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def shop() -> Project:
    project: Project = ProjectFactory.create(name="shop")
    return project


@pytest.fixture
def bob(shop: Project) -> User:
    bob: User = UserFactory.create(username="bob", first_name="Bob")
    record(Action.TASK_CREATED, by=bob, task=TaskFactory.create(project=shop, title="Round prices"))
    record(Action.SETTINGS_CHANGED, by=bob, project=ProjectFactory.create(name="bank"), changed={"a": [1, 2]})
    return bob


@pytest.fixture
def admin() -> User:
    admin: User = UserFactory.create(username="ann", is_superuser=True)
    return admin


def page(user: User, **query: str) -> str:
    response = signed_in(user).get("/audit/", query)
    assert response.status_code == 200
    return str(response.content.decode())


def test_site_admins_see_everything(admin: User, bob: User) -> None:
    shown = page(admin)
    assert "Round prices" in shown and "bank" in shown and "changed the settings of" in shown


@pytest.mark.parametrize(
    ("role", "sees"), [(Role.MAINTAINER, True), (Role.MEMBER, False), (Role.VIEWER, False)]
)
def test_maintainers_see_their_projects(shop: Project, bob: User, role: Role, sees: bool) -> None:
    user = MembershipFactory.create(project=shop, role=role).user
    shown = page(user)
    assert ("Round prices" in shown) == sees
    assert "bank" not in shown
    export = text_of(signed_in(user).get("/audit/export.csv"))
    assert ("Round prices" in export) == sees and "bank" not in export
    assert ('href="/audit/"' in signed_in(user).get("/tasks/").text) == sees, (
        "the menu leads to what there is to read"
    )


def test_maintainers_find_it_on_the_page_of_members(shop: Project, bob: User) -> None:
    record(Action.LOGGED_OUT, by=bob)
    maintainer = MembershipFactory.create(project=shop, role=Role.MAINTAINER).user
    members = reverse("project_members", args=[shop.pk])
    link = re.search(r'<a href="([^"]+)">audit log</a>', signed_in(maintainer).get(members).text)
    assert link
    shown = signed_in(maintainer).get(unescape(link[1])).text
    assert "Round prices" in shown and "<option selected>shop</option>" in shown
    member = MembershipFactory.create(project=shop).user
    assert ">audit log</a>" not in signed_in(member).get(members).text


@pytest.mark.parametrize(
    "query",
    [
        {"q": "round"}, {"person": "Bob", "project": "shop"}, {"action": "task_created"},
        {"project": "shop"},
    ],
)  # fmt: skip
def test_filters_narrow_it(admin: User, bob: User, query: dict[str, str]) -> None:
    shown = page(admin, **query)
    assert "Round prices" in shown and "<strong>bank</strong>" not in shown


@pytest.mark.parametrize("query", [{"to": "2001-01-01"}, {"from": "8999-01-01"}, {"person": "nobody"}])
def test_filters_that_nothing_matches_can_be_cleared(admin: User, bob: User, query: dict[str, str]) -> None:
    shown = page(admin, **query)
    assert "No results" in shown and "Round prices" not in shown
    assert re.search(r'href="/audit/">Clear filters<', shown)


@pytest.mark.parametrize("query", [{"from": "9999-99-99"}, {"action": "x"}, {"q": "\x00"}, {"after": "x"}])
def test_what_is_not_possible_is_ignored(admin: User, bob: User, query: dict[str, str]) -> None:
    assert "Round prices" in page(admin, **query)


def test_the_next_page_has_older_entries_and_the_same_filters(
    admin: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PER_PAGE", 1)
    record(Action.LOGGED_OUT, by=admin)
    first = page(admin, person="Bob")
    assert "<strong>bank</strong>" in first and "Round prices" not in first
    second = follow(admin, first, "next")
    assert "Round prices" in second and "<strong>bank</strong>" not in second
    assert 'rel="next"' not in second
    assert "<strong>bank</strong>" in follow(admin, second, "prev")


def follow(user: User, shown: str, rel: str) -> str:
    """Return the page that the link leads to."""
    link = re.search(rf'<a rel="{rel}" href="([^"]+)"', shown)
    assert link
    return str(signed_in(user).get(unescape(link[1])).content.decode())


def test_an_export_is_recorded(admin: User, bob: User) -> None:
    export = text_of(signed_in(admin).get("/audit/export.csv", {"project": "shop"}))
    assert "Round prices" in export and "settings_changed" not in export
    assert AuditEntry.objects.filter(action=Action.EXPORTED, actor=admin).exists()

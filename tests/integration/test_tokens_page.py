"""My API tokens (W5): made with the password, shown once, kept as a hash, revoked."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.account import app_settings
from django.test import Client
from django.utils import timezone

from tasks_app.models import Action, ApiToken, AuditEntry, Project, Role, User
from tests.factories import MembershipFactory, ProjectFactory, UserFactory

pytestmark = pytest.mark.django_db

RIGHT = "correct horse"
GIVEN: dict[str, Any] = {"name": "nightly build", "scopes": ["read", "answer"], "expires": "30"}


@pytest.fixture
def shop() -> Project:
    project: Project = ProjectFactory.create(name="shop")
    return project


@pytest.fixture
def inside(shop: Project) -> Client:
    """Ann, a member of the shop, who logged in just now."""
    MembershipFactory.create(
        project=shop, user=User.objects.create_user("ann", password=RIGHT), role=Role.MEMBER
    )
    client = Client()
    client.post("/login/", {"username": "ann", "password": RIGHT})
    return client


def secret_in(page: Any) -> str:
    return re.search(r"cath_[\w-]+(?=</pre>)", page.text)[0]  # type: ignore[index]


def opens(secret: str) -> int:
    return int(Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code)


def test_a_secret_is_shown_once_and_kept_as_a_hash(inside: Client, shop: Project) -> None:
    page = inside.post("/me/tokens/", {**GIVEN, "projects": [shop.pk]})
    secret = secret_in(page)
    assert f"Authorization: Bearer {secret}" in page.text  # the command for Claude Code
    token = ApiToken.objects.get()
    assert secret not in str(vars(token)) and "Authorization" not in str(vars(token))
    assert (token.scopes, list(token.projects.all())) == (["read", "answer"], [shop])
    assert timedelta(days=29) < token.expires_at - timezone.now() < timedelta(days=31)  # type: ignore[operator]
    listed = inside.get("/me/tokens/").text
    assert "nightly build" in listed and "never used" in listed and secret not in listed
    assert opens(secret) == 200 and "last used" in inside.get("/me/tokens/").text
    entry = AuditEntry.objects.get(action=Action.TOKEN_MADE)
    assert entry.actor.username == "ann" and secret not in str(entry.detail)  # type: ignore[union-attr]


def test_a_login_that_was_left_open_is_not_enough(inside: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token outlives the session: who finds an open browser must not carry the account away in one."""
    monkeypatch.setattr(app_settings.AppSettings, "REAUTHENTICATION_TIMEOUT", 0)
    page = inside.post("/me/tokens/", GIVEN, follow=True)
    assert "Confirm your password" in page.text and not ApiToken.objects.exists()
    wrong = inside.post(page.redirect_chain[-1][0], {"password": "hunter2"})
    assert not ApiToken.objects.exists() and "cath_" not in wrong.text
    monkeypatch.undo()
    page = inside.post(page.redirect_chain[-1][0], {"password": RIGHT}, follow=True)
    assert opens(secret_in(page)) == 200


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "x" * 101}, "at most 100 characters"),
        ({"name": "a\0b"}, "Null characters are not allowed."),
        ({"scopes": []}, "Select at least one scope."),
        ({"scopes": ["root"]}, "root is not one of the available choices"),
        ({"expires": "9999"}, "9999 is not one of the available choices"),
        ({"projects": ["999999"]}, "There is no such project, or you cannot see it."),
        ({"projects": ["9" * 30]}, "There is no such project, or you cannot see it."),
    ],
)
def test_an_invalid_form_is_reported_and_the_input_stays(
    inside: Client, given: dict[str, Any], told: str
) -> None:
    page = inside.post("/me/tokens/", {**GIVEN, **given})
    assert page.status_code == 400 and told in page.text
    assert not ApiToken.objects.exists()
    if "name" not in given:
        assert 'value="nightly build"' in page.text


def test_a_project_that_one_does_not_see_cannot_be_chosen(inside: Client) -> None:
    hidden = ProjectFactory.create(name="secret-shop")
    assert "secret-shop" not in inside.get("/me/tokens/").text
    page = inside.post("/me/tokens/", {**GIVEN, "projects": [hidden.pk]})
    assert page.status_code == 400 and "secret-shop" not in page.text


def test_a_revoked_token_is_refused_with_a_reason(inside: Client) -> None:
    secret = secret_in(inside.post("/me/tokens/", GIVEN))
    token = ApiToken.objects.get()
    page = inside.post(f"/me/tokens/{token.pk}/revoke/", follow=True)
    assert "“nightly build” revoked" in page.text and opens(secret) == 401
    assert AuditEntry.objects.filter(action=Action.TOKEN_REVOKED).count() == 1


def test_the_tokens_of_others_are_not_there(inside: Client) -> None:
    other = ApiToken.objects.create(user=UserFactory.create(), name="theirs", digest="x", scopes=["read"])
    assert "theirs" not in inside.get("/me/tokens/").text
    assert inside.post(f"/me/tokens/{other.pk}/revoke/").status_code == 404
    other.refresh_from_db()
    assert other.revoked_at is None

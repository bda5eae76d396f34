"""Tokens and cookies at the wrong door, and tokens that are over (W5, R4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.models import ApiToken, Task, User
from tests.addresses import NAMES, OPEN_TO_ALL, POST_ONLY, address
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory
from tests.integration.git_repository import GitRepository
from tests.security.test_web import question  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db


def in_use() -> tuple[Script, User]:
    user = MembershipFactory.create().user
    script = Script(user)
    assert script.get("/me").status_code == 200
    return script, user


def test_a_token_is_over_once_it_is_revoked_or_expired_or_its_owner_is_switched_off() -> None:
    script, user = in_use()
    tokens, past = ApiToken.objects.filter(user=user), timezone.now() - timedelta(seconds=1)
    for over, alive in (
        ({"revoked_at": past}, {"revoked_at": None}),
        ({"expires_at": past}, {"expires_at": None}),
    ):
        tokens.update(**over)
        assert script.get("/me").status_code == 401
        tokens.update(**alive)
    assert script.get("/me").status_code == 200
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert script.get("/me").status_code == 401


def test_a_token_opens_no_page(question: Any) -> None:  # noqa: F811
    """Only the API knows what a token may do; the admin pages are pages too."""
    admin = User.objects.create_superuser("root")
    script = Script(admin)
    pages = [address(name, question) for name in NAMES if name not in OPEN_TO_ALL | POST_ONLY]
    for page in [*pages, "/admin/", "/admin/tasks_app/auditentry/"]:
        assert Client().get(page, headers=script.headers).status_code == 302, page


@pytest.mark.parametrize(
    "secret", ["", "cath_", "cath_x", "cath_é", "x" * 5_000, "cath_" + "a" * 43, "sessionid"]
)
def test_a_made_up_token_is_nobodys_and_no_cookie_makes_it_good(secret: str) -> None:
    client = signed_in(User.objects.create_superuser("root"), raise_request_exception=False)
    assert client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_the_login_of_a_browser_changes_nothing_through_the_api_for_another_site(method: str) -> None:
    client = signed_in(
        User.objects.create_superuser("root"), enforce_csrf_checks=True, raise_request_exception=False
    )
    for kind in ("application/json", "text/plain"):
        answer = getattr(client, method)(
            "/api/v1/tasks", '{"project": "x", "text": "# x"}', content_type=kind
        )
        assert answer.status_code in (403, 405)
    assert not Task.objects.exists()


def test_a_token_kept_to_one_project_does_not_lead_it_to_the_code_of_another(tmp_path: Path) -> None:
    """A source is any folder of the portal's machine, the repositories of all other projects among them."""
    GitRepository.make(tmp_path / "other", **{"secret.md": "# Of another project\n"})
    project = ProjectFactory.create(source=str(GitRepository.make(tmp_path / "own").path))
    script = Script(User.objects.create_superuser("root"), projects=[project])
    answer = script.send("patch", f"/projects/{project}", {"source": str(tmp_path / "other")})
    assert answer.status_code == 403
    project.refresh_from_db()
    assert project.source == str(tmp_path / "own")

"""The portal's word that a form was stored, for which the browser waits before it removes a draft (R5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tasks_app.models import User
from tasks_app.web.middleware import DRAFT_FIELD, STORED_DRAFTS
from tests.factories import DecisionFactory, MembershipFactory, ProjectFactory

pytestmark = pytest.mark.django_db

MARK = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def client() -> Client:
    user = MembershipFactory.create(project=ProjectFactory.create(name="shop")).user
    client = Client()
    client.force_login(user)
    return client


def stored_after(client: Client, path: str, **fields: str) -> str:
    answer: Any = client.post(path, {DRAFT_FIELD: MARK, **fields})
    return str(answer.cookies[STORED_DRAFTS].value) if STORED_DRAFTS in answer.cookies else ""


def decision_path(client: Client, page: str, **facts: Any) -> str:
    project = User.objects.get(pk=client.session["_auth_user_id"]).memberships.get().project
    return (
        f"/projects/{project.pk}/decisions/{DecisionFactory.create(project=project, **facts).number}/{page}/"
    )


def test_r5_a_form_that_was_stored_is_named_with_those_before(client: Client) -> None:
    assert stored_after(client, decision_path(client, "revise"), statement="Cents.", scope="project") == MARK
    client.cookies[STORED_DRAFTS] = ".".join(f"{number:032x}" for number in range(20))
    stored = stored_after(client, decision_path(client, "retire")).split(".")
    assert len(stored) == 20 and stored[-1] == MARK and f"{0:032x}" not in stored


@pytest.mark.parametrize(
    ("page", "facts", "fields"),
    [
        ("revise", {}, {"statement": ""}),
        ("retire", {"state": "superseded"}, {"reason": "Old."}),
        ("retire", {}, {DRAFT_FIELD: "a mark; path=/"}),
    ],
    ids=["refused in its page", "refused in a message", "no mark"],
)
def test_r5_what_was_refused_is_not(
    client: Client, page: str, facts: dict[str, Any], fields: dict[str, str]
) -> None:
    assert stored_after(client, decision_path(client, page, **facts), **fields) == ""


def test_r5_what_follows_a_redirect_to_the_login_was_not_sent(client: Client) -> None:
    path = decision_path(client, "retire")
    client.logout()
    assert stored_after(client, path) == ""

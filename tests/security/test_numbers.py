"""Values of forms that no row and no address can have get a reason, and no error page (R5)."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.browser import signed_in
from tests.factories import MembershipFactory

pytestmark = pytest.mark.django_db

HUGE = ["99999999999999999999", "9223372036854775808", "-1", "1e400", "a\0b", "²", "٣"]


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("page", ["/me/notifications/", "/me/tokens/"])
def test_a_project_that_no_database_can_number_is_none(page: str, value: str) -> None:
    user = MembershipFactory.create().user
    user.set_password("correct horse")
    user.save()
    client = Client(raise_request_exception=False)
    client.post("/login/", {"username": user.username, "password": "correct horse"})  # tokens take it
    given = {"name": "x", "scopes": "read", "expires": "7", "projects": value}
    assert client.post(page, given).status_code == 400


@pytest.mark.parametrize(
    "back", [*HUGE, "//evil.example", "javascript:alert(1)", "nowhere", "", "/tasks/\r\nX: 1"]
)
def test_the_switch_of_the_look_leads_nowhere_else(back: str) -> None:
    client = signed_in(MembershipFactory.create().user, raise_request_exception=False)
    given = client.post("/me/theme/", {"theme": "dark", "back": back})
    assert given.status_code == 302 and given["Location"] in ("/tasks/", "/tasks/%0D%0AX:%201")

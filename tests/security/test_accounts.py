"""Ways into somebody else's account (W1, R4), beside those that integration/test_login walks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.conf import settings as installed
from django.core.cache import cache
from django.test import Client

from tasks_app.core.errors import BadInput
from tasks_app.models import Invitation, Membership, Role, User
from tasks_app.services.projects.members import (
    accept_invitation,
    find_invitation,
    invite,
    invite_again,
    mail_invitation,
)
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

HOSTS = ["localhost:3000", "127.0.0.1:3000", "[::1]:3000"]


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.org", "correct horse")


@pytest.fixture
def mails(settings: Any, mailoutbox: list[Any]) -> list[Any]:
    settings.SENDS_EMAIL = True
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    settings.ALLOWED_HOSTS = [*installed.ALLOWED_HOSTS, "testserver"]
    return mailoutbox


@pytest.mark.parametrize("host", HOSTS)
def test_a_reset_leads_to_the_portal_whatever_port_was_asked(ann: User, mails: list[Any], host: str) -> None:
    """On another port of the machine an agent may listen, and the link is a way in."""
    Client().post("/password/reset/", {"email": ann.email}, headers={"Host": host})
    (letter,) = mails
    assert re.findall(r"https?://[^/\s]+", letter.body) == ["http://127.0.0.1:8000"]


@pytest.mark.parametrize("host", HOSTS)
def test_an_invitation_that_is_mailed_leads_to_the_portal(mails: list[Any], host: str) -> None:
    by = MembershipFactory.create(role=Role.MAINTAINER)
    client = signed_in(by.user)
    given = {"user": "new@example.org", "role": "viewer"}
    client.post(f"/projects/{by.project_id}/members/", given, headers={"Host": host})
    given = {"email": "newer@example.org", "role": "viewer"}
    address = f"/projects/{by.project.name}/invitations"
    assert Script(by.user).post(address, given, Host=host).status_code == 201
    for letter in mails:
        assert re.findall(r"https?://[^/\s]+", letter.body) == ["http://127.0.0.1:8000"]
    assert len(mails) == 2


def test_a_new_address_is_confirmed_at_the_portal(ann: User, mails: list[Any]) -> None:
    client = Client()
    client.post("/login/", {"username": "ann", "password": "correct horse"})
    given = {"name": "", "email": "new@example.org", "theme": "dark"}
    client.post("/login/again/", {"password": "correct horse"})
    client.post("/me/", given, headers={"Host": HOSTS[0]})
    (letter,) = mails
    assert set(re.findall(r"https?://[^/\s]+", letter.body)) == {"http://127.0.0.1:8000"}


def try_in(client: Client, name: str, **where: Any) -> int:
    return int(client.post("/login/", {"username": name, "password": "wrong"}, **where).status_code)


def test_one_name_in_many_spellings_is_one_name() -> None:
    """PostgreSQL finds `ſam` where `SAM` is looked for: it compares in upper case."""
    client = Client()
    spellings = ["kris", "KRIS", "Kris", "\u212aris", "kri\u017f", "kr\u0131s", "kriS"]
    assert [try_in(client, name) for name in spellings][5:] == [429, 429]


def test_a_header_does_not_change_the_address_of_who_tries() -> None:
    client = Client()
    tries = [try_in(client, "ann", headers={"X-Forwarded-For": f"192.0.2.{n}"}) for n in range(6)]
    assert tries[-1] == 429


def test_trying_other_names_does_not_make_the_counts_forgotten() -> None:
    client = Client()
    for _ in range(5):
        try_in(client, "ann")
    for number in range(1000):
        cache.set(f"another-{number}", [1])
    assert try_in(client, "ann") == 429


def test_a_link_that_was_shown_proves_no_mailbox(mails: list[Any]) -> None:
    """A mail that is slow to go must not vouch for the link that was made, and shown, meanwhile."""
    by = MembershipFactory.create(role=Role.MAINTAINER)
    slow, _ = invite(by.project, "victim@example.org", Role.VIEWER, by=acting(by.user))
    invite_again(Invitation.objects.get(), by=acting(by.user))
    assert mail_invitation(slow, "http://x/")
    assert not Invitation.objects.get().mailed


@pytest.mark.parametrize("how", ["switched-off", "removed", "demoted"])
def test_who_is_let_go_does_not_come_back_by_a_link_of_their_own(how: str) -> None:
    """Also where a site admin does it in the admin pages, which know of no invitations."""
    by = MembershipFactory.create(role=Role.MAINTAINER)
    _, token = invite(by.project, "other@example.org", Role.MAINTAINER, by=acting(by.user))
    if how == "switched-off":
        User.objects.filter(pk=by.user_id).update(is_active=False)
    elif how == "removed":
        by.delete()
    else:
        type(by).objects.filter(pk=by.pk).update(role=Role.VIEWER)
    client = Client()
    given = {"username": "back", "password": "battery staple"}
    assert client.get(f"/invitations/{token}/").status_code == 410
    assert client.post(f"/invitations/{token}/", given).status_code == 410
    assert not User.objects.filter(username="back").exists()
    found = find_invitation(token)
    assert found
    with pytest.raises(BadInput):
        accept_invitation(found, by=UserFactory.create())


def test_a_login_like_another_users_email_gets_nothing_of_theirs() -> None:
    by = MembershipFactory.create(role=Role.MAINTAINER)
    thief = UserFactory.create(username="victim@example.org")
    client = signed_in(by.user)
    client.post(f"/projects/{by.project_id}/members/", {"user": "victim@example.org", "role": "maintainer"})
    assert not Membership.objects.filter(user=thief).exists()
    assert Invitation.objects.get().email == "victim@example.org"


@pytest.mark.parametrize(("login", "status"), [("victim@example.org", 400), ("Own@example.org", 302)])
def test_an_invited_person_cannot_take_another_users_email_as_login(login: str, status: int) -> None:
    by = MembershipFactory.create(role=Role.MAINTAINER)
    _, token = invite(by.project, "own@example.org", Role.VIEWER, by=acting(by.user))
    given = {"username": login, "password": "battery staple"}
    assert Client().post(f"/invitations/{token}/", given).status_code == status


@pytest.mark.parametrize(
    "known", ["ann", "ann@example.org", "ann@example.com", "nobody", "nobody@example.org"]
)
def test_the_duration_of_a_login_does_not_reveal_who_is_known(
    known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known address took twice as long: its password was looked at twice."""
    ann = User.objects.create_user("ann", email="ann@example.org", password="correct horse")
    EmailAddress.objects.create(user=ann, email=ann.email, primary=True, verified=True)
    User.objects.create_user("ann@example.com", password="correct horse")
    hashed: list[str] = []
    for name in ("check_password", "set_password"):

        def noted(user: User, password: str, name: str = name) -> bool:
            hashed.append(name)
            return False

        monkeypatch.setattr(User, name, noted)
    Client().post("/login/", {"username": known, "password": "wrong"})
    assert len(hashed) == 1

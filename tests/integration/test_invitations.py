"""Invitations (W1): a link that works once and for a week, and of which only a hash is kept."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.models import Action, AuditEntry, Invitation, Membership, Project, Role, User
from tasks_app.services.projects.members import accept_invitation, find_invitation, invite
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

NEW = {"username": "ann", "name": "Ann Example", "password": "correct horse"}


@pytest.fixture
def boss(project: Project) -> User:
    return MembershipFactory.create(project=project, role=Role.MAINTAINER, user__username="boss").user


@pytest.fixture
def at(project: Project, boss: User) -> Client:
    """The browser of the maintainer."""
    return signed_in(boss)


def test_what_a_page_refuses_is_not_logged_with_its_address(
    project: Project, boss: User, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The link of an invitation is a secret until it was used."""
    link = link_for(project, boss)
    assert client.post(link, {**NEW, "password": "password"}).status_code == 400
    assert client.get("/no/such/page/").status_code in {302, 404}
    assert caplog.messages == []


def link_for(project: Project, boss: User, email: str = "ann@example.org", role: Role = Role.MEMBER) -> str:
    return reverse("invitation", args=[invite(project, email, role, by=acting(boss))[1]])


def members(project: Project) -> str:
    return reverse("project_members", args=[project.pk])


def test_without_e_mail_the_link_is_shown_to_the_inviter_once(project: Project, at: Client) -> None:
    page = at.post(members(project), {"user": "Ann@Example.org", "role": "member"}, follow=True).text
    link = re.search(r"http://testserver(/invitations/[\w-]+/)", page)[1]  # type: ignore[index]
    assert "shown only now" in page and link not in at.get(members(project)).text
    invitation = Invitation.objects.get()
    assert (invitation.email, invitation.mailed) == ("ann@example.org", False)
    assert link.split("/")[2] not in str(vars(invitation))
    assert "Join shop" in Client().get(link).text
    assert AuditEntry.objects.get(action=Action.INVITED).subject == "ann@example.org"


def test_with_e_mail_the_link_goes_to_the_address_and_nowhere_else(
    project: Project, at: Client, settings: Any
) -> None:
    settings.SENDS_EMAIL = True
    page = at.post(members(project), {"user": "ann@example.org", "role": "viewer"}, follow=True).text
    (letter,) = mail.outbox
    assert letter.to == ["ann@example.org"] and "boss invites you to the project shop" in letter.body
    assert "A link was sent to ann@example.org" in page and "/invitations/" not in page.replace(
        "/again/", ""
    ).replace(f"/projects/{project.pk}/invitations/", "")
    link = re.search(r"http://127.0.0.1:8000(\S+)", str(letter.body))[1]  # type: ignore[index]
    Client().post(link, NEW)
    assert EmailAddress.objects.get(email="ann@example.org").verified


def test_a_mail_that_cannot_be_sent_shows_the_link_instead(
    project: Project, at: Client, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.SENDS_EMAIL = True
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    page = at.post(members(project), {"user": "ann@example.org", "role": "viewer"}, follow=True).text
    assert "The e-mail could not be sent" in page and "http://testserver/invitations/" in page


def test_an_invited_person_creates_an_account_and_is_logged_in(project: Project, boss: User) -> None:
    client = Client()
    link = link_for(project, boss)
    assert 'value="ann"' in client.get(link).text
    page = client.post(link, NEW, follow=True)
    assert "Welcome to shop. You are a member there." in page.text
    ann = User.objects.get(username="ann")
    assert (ann.shown_name, ann.email) == ("Ann Example", "ann@example.org")
    assert Membership.objects.get(user=ann).role == "member"
    assert not EmailAddress.objects.get(
        user=ann
    ).verified  # The link was handed over: that proves no address.
    told = AuditEntry.objects.filter(actor=ann).order_by("pk").values_list("action", flat=True)
    assert list(told) == ["account_made", "invitation_accepted", "role_given", "logged_in"]
    again = Client()
    again.post("/login/", {"username": "ann", "password": "correct horse"})
    assert again.get("/inbox/").status_code == 200


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"username": "boss"}, "This user name is taken"),
        ({"username": "BOSS"}, "This user name is taken"),
        ({"username": ""}, "This field is required"),
        ({"username": "a b"}, "Enter a valid username"),
        ({"username": "a\0"}, "Null characters"),
        ({"name": "\0"}, "Null characters"),
        ({"password": "short"}, "too short"),
        ({"password": "password"}, "too common"),
        ({"password": "ann@example.org"}, "too similar"),
    ],
)
def test_a_login_that_cannot_be_made_is_refused_in_words(
    project: Project, boss: User, given: dict[str, str], said: str
) -> None:
    link = link_for(project, boss)
    page = Client().post(link, {**NEW, **given})
    assert page.status_code == 400 and said in page.text
    assert 'value="Ann Example"' in page.text or "name" in given
    assert "correct horse" not in page.text and find_invitation(link.split("/")[2]).state == "open"  # type: ignore[union-attr]


def test_an_address_that_is_taken_is_sent_to_the_login(project: Project, boss: User) -> None:
    UserFactory.create(username="ann", email="ann@example.org")
    link = link_for(project, boss)
    page = Client().get(link).text
    assert "is already an account with" in page and f"/login/?next={link}" in page
    assert Client().post(link, {**NEW, "username": "other"}).status_code == 400


def test_who_is_logged_in_joins_with_one_click(project: Project, boss: User) -> None:
    ben = UserFactory.create(username="ben")
    client = signed_in(ben)
    link = link_for(project, boss)
    assert "Join as ben" in client.get(link).text
    assert not Membership.objects.filter(user=ben).exists()
    client.post(link)
    assert Membership.objects.get(user=ben).role == "member"
    assert Invitation.objects.get().accepted_by == ben


@pytest.mark.parametrize(
    ("has", "invited_as", "gets"), [("maintainer", "viewer", "maintainer"), ("viewer", "member", "member")]
)
def test_nobody_loses_a_role_by_joining(
    project: Project, boss: User, has: str, invited_as: str, gets: str
) -> None:
    link = link_for(project, boss, role=Role(invited_as))
    ben = MembershipFactory.create(project=project, role=has)
    client = signed_in(ben.user)
    assert f"You are already a {has} there" in client.get(link).text
    client.post(link)
    ben.refresh_from_db()
    assert ben.role == gets


@pytest.mark.parametrize(
    ("over", "said"),
    [("accepted", "was already used"), ("withdrawn", "was withdrawn"), ("expired", "has expired")],
)
def test_a_link_that_is_over_says_kindly_why(project: Project, boss: User, over: str, said: str) -> None:
    link = link_for(project, boss)
    past = timezone.now() - timedelta(minutes=1)
    field = {"accepted": "accepted_at", "withdrawn": "withdrawn_at", "expired": "expires_at"}[over]
    Invitation.objects.update(**{field: past})
    for page in (Client().get(link), Client().post(link, NEW)):
        assert page.status_code == 410 and said in page.text and "shop" not in page.text
    assert not User.objects.filter(username="ann").exists()


@pytest.mark.parametrize("token", ["x", "%00", "a" * 5000, "é", "..%2f"])
def test_a_made_up_link_leads_nowhere(token: str) -> None:
    assert Client().get(f"/invitations/{token}/").status_code == 404


def test_of_two_who_use_the_same_link_one_is_in(project: Project, boss: User) -> None:
    invitation, _ = invite(project, "ann@example.org", Role.MEMBER, by=acting(boss))
    stale = Invitation.objects.get(pk=invitation.pk)
    accept_invitation(invitation, by=UserFactory.create())
    with pytest.raises(BadInput, match="used"):
        accept_invitation(stale, by=UserFactory.create())
    assert Membership.objects.count() == 2


def test_a_new_link_ends_the_old_one_and_lasts_another_week(project: Project, boss: User, at: Client) -> None:
    old = link_for(project, boss)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(days=1))
    row = Invitation.objects.get()
    page = at.post(reverse("invitation_again", args=[project.pk, row.pk]), follow=True).text
    new = re.search(r"http://testserver(/invitations/[\w-]+/)", page)[1]  # type: ignore[index]
    assert Client().get(old).status_code == 404 and Client().get(new).status_code == 200
    assert Invitation.objects.get().expires_at > timezone.now() + timedelta(days=6)


def test_who_only_claims_an_address_does_not_keep_its_owner_out(
    project: Project, at: Client, settings: Any
) -> None:
    """A member could write a newcomer's address into their own settings, before the newcomer comes."""
    settings.SENDS_EMAIL = True
    squatter = MembershipFactory.create(project=project, user__username="squatter").user
    User.objects.filter(pk=squatter.pk).update(email="ann@example.org")
    EmailAddress.objects.create(user=squatter, email="ann@example.org", primary=True, verified=False)
    at.post(members(project), {"user": "ann@example.org", "role": "viewer"})
    link = re.search(r"http://127.0.0.1:8000(\S+)", str(mail.outbox[0].body))[1]  # type: ignore[index]
    assert (
        "Another account uses the address ann@example.org without having confirmed it"
        in Client().get(link).text
    )
    assert Client().post(link, NEW).status_code == 302
    squatter.refresh_from_db()
    owner = EmailAddress.objects.get(email="ann@example.org")
    assert (owner.user.username, owner.verified, squatter.email) == ("ann", True, "")
    entry = AuditEntry.objects.get(action=Action.ACCOUNT_CHANGED)
    assert (entry.actor_name, entry.subject) == ("Ann Example", "squatter")


def test_who_confirmed_an_address_keeps_it(project: Project, boss: User) -> None:
    owner = UserFactory.create(username="owner", email="ann@example.org")
    EmailAddress.objects.create(user=owner, email="ann@example.org", primary=True, verified=True)
    link = link_for(project, boss)
    Invitation.objects.update(mailed=True)
    assert "is already an account with" in Client().get(link).text
    assert Client().post(link, NEW).status_code == 400
    assert not User.objects.filter(username="ann").exists()


def test_inviting_the_same_address_again_renews_it(project: Project, boss: User) -> None:
    first = link_for(project, boss)
    second = link_for(project, boss, role=Role.VIEWER)
    assert Client().get(first).status_code == 404 and "viewer" in Client().get(second).text
    assert Invitation.objects.count() == 1


def test_a_withdrawn_link_stops_working_and_says_so(project: Project, boss: User, at: Client) -> None:
    link = link_for(project, boss)
    where = reverse("invitation_withdraw", args=[project.pk, Invitation.objects.get().pk])
    assert "withdrawn. Its link no longer works." in at.post(where, follow=True).text
    assert Client().get(link).status_code == 410
    assert AuditEntry.objects.filter(action=Action.INVITATION_WITHDRAWN).count() == 1
    assert "accepted or withdrawn meanwhile" in at.post(where, follow=True).text
    assert "ann@example.org" not in at.get(members(project)).text


def test_an_invitation_of_another_project_cannot_be_reached(project: Project, boss: User, at: Client) -> None:
    other = MembershipFactory.create(role=Role.MAINTAINER)
    invitation, _ = invite(other.project, "x@example.org", Role.VIEWER, by=acting(other.user))
    for name in ("invitation_again", "invitation_withdraw"):
        assert at.post(reverse(name, args=[project.pk, invitation.pk])).status_code == 404
        assert at.post(reverse(name, args=[other.project_id, invitation.pk])).status_code == 404


def test_only_maintainers_invite(project: Project, boss: User) -> None:
    member = MembershipFactory.create(project=project)
    with pytest.raises(NotAllowed, match="maintainers manage members"):
        invite(project, "x@example.org", Role.VIEWER, by=acting(member.user))

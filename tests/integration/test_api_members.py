"""Members and invitations through the API (W1, W5): for maintainers, as on the page."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app.models import AuditEntry, IdempotencyKey, Invitation, Membership, Project, Role
from tasks_app.services.projects.members import find_invitation
from tests.api import PROBLEM, Script
from tests.factories import MembershipFactory, ProjectFactory, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def ann(project: Project) -> Script:
    return Script(MembershipFactory.create(project=project, user__username="ann", role=Role.MAINTAINER).user)


def refused(answer: Any, status: int) -> str:
    assert (answer.status_code, answer["Content-Type"]) == (status, PROBLEM), answer.content
    return str(answer.json()["detail"])


def test_a_role_is_given_changed_and_taken(ann: Script, project: Project) -> None:
    UserFactory.create(username="bob")
    for role in ("viewer", "member", "member"):
        answer = ann.send("put", "/projects/shop/members/bob", {"role": role})
        assert (answer.status_code, answer.json()["role"]) == (200, role), answer.content
        assert Membership.objects.get(user__username="bob").role == role
    assert ann.send("delete", "/projects/shop/members/bob").status_code == 204
    assert not Membership.objects.filter(user__username="bob").exists()
    told = AuditEntry.objects.filter(via="api", subject="bob").order_by("pk").values_list("action", flat=True)
    assert list(told) == ["role_given", "role_given", "role_taken"]


def test_the_last_maintainer_stays(ann: Script, project: Project) -> None:
    told = refused(ann.send("put", "/projects/shop/members/ann", {"role": "viewer"}), 400)
    assert "last maintainer" in told
    refused(ann.send("delete", "/projects/shop/members/ann"), 400)
    assert project.memberships.get().role == Role.MAINTAINER


def test_who_is_not_there_is_404_and_a_role_that_is_none_is_400(ann: Script, project: Project) -> None:
    UserFactory.create(username="bob")
    refused(ann.send("put", "/projects/shop/members/nobody", {"role": "viewer"}), 404)
    refused(ann.send("delete", "/projects/shop/members/bob"), 404)
    answer = ann.send("put", "/projects/shop/members/bob", {"role": "owner"})
    refused(answer, 400)
    assert answer.json()["errors"][0]["where"] == "body.role"


def test_who_is_no_maintainer_learns_nothing_of_logins_or_invitations(project: Project) -> None:
    """Whether a name has a login is asked after the role, so the answer is the same for all names."""
    member = Script(MembershipFactory.create(project=project, role=Role.MEMBER).user)
    UserFactory.create(username="bob")
    for name in ("bob", "nobody"):
        refused(member.send("put", f"/projects/shop/members/{name}", {"role": "viewer"}), 403)
        refused(member.send("delete", f"/projects/shop/members/{name}"), 403)
    for number in (1, 2):
        refused(member.send("delete", f"/projects/shop/invitations/{number}"), 403)
    refused(member.get("/projects/shop/invitations"), 403)


def test_an_invitation_shows_its_link_once(ann: Script, project: Project, settings: Any) -> None:
    """The portal keeps a hash of the link, so a repeated answer has none."""
    settings.SENDS_EMAIL = False
    body = {"email": "Bob@example.org", "role": "member"}
    made = ann.post("/projects/shop/invitations", body, Idempotency_Key="k")
    assert (made.status_code, made.json()["email"], made.json()["mailed"]) == (201, "bob@example.org", False)
    link = made.json()["link"]
    token = link.rstrip("/").rsplit("/", 1)[1]
    assert find_invitation(token) == Invitation.objects.get()
    again = ann.post("/projects/shop/invitations", body, Idempotency_Key="k")
    assert (again.json()["link"], again.json()["id"]) == (None, made.json()["id"])
    assert again["Idempotency-Replayed"] == "true"
    assert token not in IdempotencyKey.objects.get().body
    assert find_invitation(token)


def test_where_e_mail_is_sent_the_link_goes_to_the_address_alone(
    ann: Script, project: Project, settings: Any
) -> None:
    settings.SENDS_EMAIL = True
    made = ann.post("/projects/shop/invitations", {"email": "bob@example.org", "role": "viewer"}).json()
    assert (made["mailed"], made["link"]) == (True, None)
    assert mail.outbox[0].to == ["bob@example.org"] and "/invitations/" in mail.outbox[0].body


def test_invitations_are_listed_renewed_and_withdrawn(ann: Script, project: Project, settings: Any) -> None:
    settings.SENDS_EMAIL = False
    made = ann.post("/projects/shop/invitations", {"email": "bob@example.org", "role": "viewer"}).json()
    (listed,) = ann.get("/projects/shop/invitations").json()["items"]
    assert (listed["state"], listed["invited_by"]["username"]) == ("open", "ann")
    assert "link" not in listed
    renewed = ann.post(f"/projects/shop/invitations/{made['id']}/again").json()
    assert renewed["link"] not in (None, made["link"])
    assert ann.send("delete", f"/projects/shop/invitations/{made['id']}").status_code == 204
    assert ann.get("/projects/shop/invitations").json()["items"] == []
    refused(ann.send("delete", f"/projects/shop/invitations/{made['id']}"), 404)
    entry = AuditEntry.objects.get(action="invitation_withdrawn")
    assert (entry.via, entry.subject) == ("api", "bob@example.org")


def test_an_address_that_is_none_is_400_and_a_member_is_not_invited(ann: Script, project: Project) -> None:
    for bad in ("bob", "", "a@b\0.org", "x" * 250 + "@example.org"):
        answer = ann.post("/projects/shop/invitations", {"email": bad, "role": "viewer"})
        refused(answer, 400)
        assert answer.json()["errors"][0]["where"] == "body.email"
    MembershipFactory.create(project=project, user__email="bob@example.org")
    answer = ann.post("/projects/shop/invitations", {"email": "bob@example.org", "role": "viewer"})
    assert "is already a member" in refused(answer, 400)


def test_an_invitation_of_another_project_is_404(ann: Script, project: Project) -> None:
    other = Invitation.objects.create(
        project=ProjectFactory.create(),
        email="bob@example.org",
        token_hash="x",
    )
    refused(ann.send("delete", f"/projects/shop/invitations/{other.pk}"), 404)
    refused(ann.post(f"/projects/shop/invitations/{other.pk}/again"), 404)


@pytest.mark.parametrize("what", ["members", "invitations"])
def test_lists_come_in_pages_and_ask_the_database_as_often_for_many_rows(
    what: str, ann: Script, project: Project
) -> None:
    def more(number: int) -> None:
        member = MembershipFactory.create(project=project, user__username=f"m{number}")
        Invitation.objects.create(
            project=project, email=f"{number}@example.org", token_hash=str(number), invited_by=member.user
        )

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert ann.get(f"/projects/shop/{what}").status_code == 200
        return len(queries)

    more(0)
    count()  # the first use of a token is written down
    once = count()
    for number in range(1, 6):
        more(number)
    assert count() == once
    page = ann.get(f"/projects/shop/{what}", limit=3).json()
    rest = ann.get(page["next"].removeprefix("/api/v1")).json()
    names = [one.get("username") or one["email"] for one in page["items"] + rest["items"]]
    assert len(names) == len(set(names)) == 6

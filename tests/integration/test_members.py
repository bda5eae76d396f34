"""Members of a project (W1): seen by all of them, changed by maintainers, and never without a maintainer."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.models import Action, AuditEntry, Invitation, Membership, Project, Role, User
from tasks_app.services.projects.members import change_role, remove_member
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss(project: Project) -> User:
    return MembershipFactory.create(project=project, role=Role.MAINTAINER, user__username="boss").user


@pytest.fixture
def ann(project: Project) -> Membership:
    return MembershipFactory.create(project=project, role=Role.MEMBER, user__username="ann")


def members(project: Project) -> str:
    return reverse("project_members", args=[project.pk])


def role_of(name: str) -> str | None:
    return Membership.objects.filter(user__username=name).values_list("role", flat=True).first()


def test_every_member_sees_the_list_and_only_maintainers_see_forms(
    project: Project, boss: User, ann: Membership
) -> None:
    seen = signed_in(ann.user).get(members(project)).text
    assert "boss" in seen and "maintainer" in seen and "Remove…" not in seen and 'name="user"' not in seen
    assert "Remove…" in signed_in(boss).get(members(project)).text


def test_invited_addresses_are_shown_to_maintainers_only(
    project: Project, boss: User, ann: Membership
) -> None:
    signed_in(boss).post(members(project), {"user": "new@example.org", "role": "member"})
    assert "new@example.org" in signed_in(boss).get(members(project)).text
    assert "new@example.org" not in signed_in(ann.user).get(members(project)).text


def test_a_change_of_a_role_is_audited(project: Project, boss: User, ann: Membership) -> None:
    signed_in(boss).post(reverse("project_member_role", args=[project.pk, ann.pk]), {"role": "viewer"})
    assert role_of("ann") == "viewer"
    entry = AuditEntry.objects.get(action=Action.ROLE_GIVEN)
    assert (entry.actor, entry.subject, entry.project_name) == (boss, "ann", "shop")
    assert entry.detail == {"role": "viewer", "before": "member"}


def test_the_same_role_again_is_not_audited(project: Project, boss: User, ann: Membership) -> None:
    signed_in(boss).post(reverse("project_member_role", args=[project.pk, ann.pk]), {"role": "member"})
    assert not AuditEntry.objects.filter(action=Action.ROLE_GIVEN).exists()


@pytest.mark.parametrize("role", ["", "root", "\0", "maintainer\0"])
def test_a_role_that_is_none_changes_nothing(
    project: Project, boss: User, ann: Membership, role: str
) -> None:
    where = reverse("project_member_role", args=[project.pk, ann.pk])
    assert "Choose a role" in signed_in(boss).post(where, {"role": role}, follow=True).text
    assert role_of("ann") == "member"


def test_a_member_is_removed_and_sees_nothing_any_more(project: Project, boss: User, ann: Membership) -> None:
    client = signed_in(ann.user)
    assert client.get(members(project)).status_code == 200
    signed_in(boss).post(reverse("project_member_remove", args=[project.pk, ann.pk]))
    assert client.get(members(project)).status_code == 404
    entry = AuditEntry.objects.get(action=Action.ROLE_TAKEN)
    assert (entry.subject, entry.detail) == ("ann", {"role": "member"})


def test_removing_somebody_twice_is_404(project: Project, boss: User, ann: Membership) -> None:
    where = reverse("project_member_remove", args=[project.pk, ann.pk])
    assert [signed_in(boss).post(where).status_code for _ in range(2)] == [302, 404]


@pytest.mark.parametrize("what", ["remove", "demote"])
def test_the_last_maintainer_stays(project: Project, boss: User, ann: Membership, what: str) -> None:
    mine = Membership.objects.get(user=boss)
    name = "project_member_remove" if what == "remove" else "project_member_role"
    page = signed_in(boss).post(reverse(name, args=[project.pk, mine.pk]), {"role": "viewer"}, follow=True)
    assert "boss is the last maintainer of shop" in page.text
    assert role_of("boss") == "maintainer"


def test_a_maintainer_who_cannot_log_in_does_not_count(project: Project, boss: User) -> None:
    MembershipFactory.create(project=project, role=Role.MAINTAINER, user__is_active=False)
    with pytest.raises(BadInput, match="last maintainer"):
        remove_member(Membership.objects.get(user=boss), by=acting(boss))


def test_a_maintainer_may_go_when_another_is_there(project: Project, boss: User) -> None:
    MembershipFactory.create(project=project, role=Role.MAINTAINER)
    mine = Membership.objects.get(user=boss)
    page = signed_in(boss).post(reverse("project_member_remove", args=[project.pk, mine.pk]))
    assert page["Location"] == "/tasks/" and role_of("boss") is None


def test_who_is_demoted_leaves_no_open_invitation(project: Project, boss: User) -> None:
    other = MembershipFactory.create(project=project, role=Role.MAINTAINER)
    signed_in(other.user).post(members(project), {"user": "friend@example.org", "role": "maintainer"})
    change_role(other, Role.VIEWER, by=acting(boss))
    assert Invitation.objects.get().state == "withdrawn"


@pytest.mark.parametrize("who", ["ben", "BEN", "ben@example.org"])
def test_who_has_a_login_is_added_at_once(project: Project, boss: User, who: str) -> None:
    ben = UserFactory.create(username="ben", email="ben@example.org")
    EmailAddress.objects.create(user=ben, email="ben@example.org", verified=True, primary=True)
    page = signed_in(boss).post(members(project), {"user": who, "role": "viewer"}, follow=True)
    assert "(ben) is now a viewer" in page.text and role_of("ben") == "viewer"
    assert AuditEntry.objects.get(action=Action.ROLE_GIVEN).subject == "ben"


def test_an_unconfirmed_email_is_invited_and_not_added(project: Project, boss: User) -> None:
    """Else somebody could claim the address of a colleague who is about to be added."""
    UserFactory.create(username="mallory", email="boss2@example.org")
    signed_in(boss).post(members(project), {"user": "boss2@example.org", "role": "maintainer"})
    assert role_of("mallory") is None and Invitation.objects.get().email == "boss2@example.org"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user": "nobody"}, "There is no user with this name"),
        ({"user": ""}, "This field is required"),
        ({"user": "a\0b"}, "Null characters"),
        ({"user": "ann"}, "is already a member"),
        ({"user": "off"}, "deactivated"),
        ({"user": "x" * 255}, "at most 254"),
        ({"user": "ben@example.org", "role": "root"}, "not one of the available choices"),
    ],
)
def test_a_person_who_cannot_be_added_is_reported_and_the_input_stays(
    project: Project, boss: User, ann: Membership, given: dict[str, str], said: str
) -> None:
    UserFactory.create(username="off", is_active=False)
    page = signed_in(boss).post(members(project), {"role": "viewer", **given})
    assert page.status_code == 400 and said in page.text
    assert f'value="{given["user"]}"' in page.text or not given["user"] or "\0" in given["user"]
    assert Membership.objects.count() == 2


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
def test_nobody_else_changes_members(project: Project, boss: User, ann: Membership, role: Role) -> None:
    other = MembershipFactory.create(project=project, role=role)
    client = signed_in(other.user)
    posts = [
        (members(project), {"user": "x@example.org", "role": "maintainer"}),
        (reverse("project_member_role", args=[project.pk, other.pk]), {"role": "maintainer"}),
        (reverse("project_member_remove", args=[project.pk, ann.pk]), {}),
    ]
    for where, given in posts:
        page = client.post(where, given)
        assert page.status_code == 403 and "maintainers manage members" in page.text
    assert (role_of("ann"), Invitation.objects.count()) == ("member", 0)
    with pytest.raises(NotAllowed):
        change_role(other, Role.MAINTAINER, by=acting(other.user))


def test_a_member_of_another_project_cannot_be_reached(project: Project, boss: User) -> None:
    other = MembershipFactory.create()
    where = reverse("project_member_remove", args=[project.pk, other.pk])
    assert signed_in(boss).post(where).status_code == 404


def test_a_longer_list_costs_no_more_queries(project: Project, boss: User) -> None:
    client = signed_in(boss)
    counts: list[Any] = []
    for many in (0, 20):
        for number in range(many):
            MembershipFactory.create(project=project)
            client.post(members(project), {"user": f"{number}@example.org", "role": "viewer"})
        client.get(members(project))
        with CaptureQueriesContext(connection) as queries:
            client.get(members(project))
        counts.append(len(queries))
    assert counts[1] <= counts[0] + 1  # The name of who invited, for all at once.


class TestInTheAuditRoom:
    """A role given there is told like any other (W4)."""

    @pytest.fixture
    def root(self) -> Client:
        return signed_in(User.objects.create_superuser("root"))

    def test_roles_given_changed_and_taken_are_audited(self, root: Client, project: Project) -> None:
        ben = UserFactory.create(username="ben")
        given = {"user": ben.pk, "project": project.pk, "role": "viewer"}
        root.post(reverse("admin:tasks_app_membership_add"), given)
        row = Membership.objects.get()
        root.post(reverse("admin:tasks_app_membership_change", args=[row.pk]), {**given, "role": "member"})
        root.post(reverse("admin:tasks_app_membership_delete", args=[row.pk]), {"post": "yes"})
        told = AuditEntry.objects.filter(project_name="shop").order_by("pk").values_list("action", "detail")
        assert list(told) == [
            ("role_given", {"role": "viewer", "before": ""}),
            ("role_given", {"role": "member", "before": "viewer"}),
            ("role_taken", {"role": "member"}),
        ]

    def test_events_claimed_together_are_handled_one_by_one(self, root: Client, project: Project) -> None:
        rows = [MembershipFactory.create(project=project).pk for _ in range(3)]
        posted = {"action": "delete_selected", "_selected_action": rows, "post": "yes"}
        root.post(reverse("admin:tasks_app_membership_changelist"), posted)
        assert AuditEntry.objects.filter(action=Action.ROLE_TAKEN).count() == 3

    def test_accounts_created_and_changed_are_audited(self, root: Client) -> None:
        new = {"username": "new", "password1": "long enough 1", "password2": "long enough 1"}
        root.post(reverse("admin:tasks_app_user_add"), {**new, "usable_password": "true"})
        user = User.objects.get(username="new")
        password = {"password1": "longer still 2", "password2": "longer still 2", "usable_password": "true"}
        root.post(reverse("admin:auth_user_password_change", args=[user.pk]), password)
        entries = AuditEntry.objects.filter(subject="new").order_by("pk")
        assert [entry.action for entry in entries] == ["account_made", "password_changed"]
        assert "longer still" not in str([entry.detail for entry in entries])

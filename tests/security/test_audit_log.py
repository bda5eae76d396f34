"""The admin pages for staff without a permission, and with one that leads to more than it says (W4, R4)."""

from __future__ import annotations

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse

from tasks_app.models import Action, AuditEntry, BrowserSession, Membership, Role, User
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory

pytestmark = pytest.mark.django_db


def clerk(*permissions: str) -> tuple[Client, User]:
    """Somebody whom a site admin lets into the admin pages for some things."""
    user = UserFactory.create(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = signed_in(user)
    return client, user


def test_only_a_site_admin_makes_one() -> None:
    """Django lets whoever may change people make themselves one, or set a site admin's password."""
    root = UserFactory.create(is_superuser=True, is_staff=True)
    client, user = clerk("view_user", "change_user", "add_user", "delete_user")
    for person in (user, root):
        page = reverse("admin:tasks_app_user_change", args=[person.pk])
        given = {"username": person.username, "is_superuser": "on", "is_staff": "on", "is_active": "on"}
        assert client.post(page, given).status_code == 403
        password = {"password1": "battery staple", "password2": "battery staple", "usable_password": "true"}
        assert (
            client.post(reverse("admin:auth_user_password_change", args=[person.pk]), password).status_code
            == 403
        )
    assert client.post(reverse("admin:tasks_app_user_add"), {"username": "x"}).status_code == 403
    assert list(User.objects.filter(is_superuser=True)) == [root]


def test_a_role_that_is_given_on_the_page_of_a_project_is_told() -> None:
    root = signed_in(UserFactory.create(is_superuser=True, is_staff=True))
    membership, new = MembershipFactory.create(role=Role.VIEWER), UserFactory.create()
    project = membership.project
    page = reverse("admin:tasks_app_project_change", args=[project.pk])
    form = root.get(page).context["adminform"].form
    given = {name: value for name, value in form.initial.items() if value not in (None, False)}
    rows = "memberships"
    given |= {
        f"{rows}-TOTAL_FORMS": 2, f"{rows}-INITIAL_FORMS": 1,
        f"{rows}-0-id": membership.pk, f"{rows}-0-project": project.pk, f"{rows}-0-user": membership.user_id,
        f"{rows}-0-role": "maintainer", f"{rows}-1-project": project.pk, f"{rows}-1-user": new.pk,
        f"{rows}-1-role": "member",
    }  # fmt: skip
    assert root.post(page, given).status_code == 302
    told = AuditEntry.objects.filter(action=Action.ROLE_GIVEN).order_by("pk")
    assert [(entry.subject, entry.detail) for entry in told] == [
        (membership.user.username, {"role": "maintainer", "before": "viewer"}),
        (new.username, {"role": "member", "before": ""}),
    ]
    gone = {**given, f"{rows}-INITIAL_FORMS": 2, f"{rows}-0-DELETE": "on"}
    gone[f"{rows}-1-id"] = Membership.objects.get(user=new).pk
    assert root.post(page, gone).status_code == 302
    assert AuditEntry.objects.get(action=Action.ROLE_TAKEN).subject == membership.user.username


def test_nobody_else_gives_themselves_more_by_a_group() -> None:
    client, user = clerk("view_group", "change_group", "add_group", "delete_group")
    group = Group.objects.create(name="clerks")
    user.groups.add(group)
    page = reverse("admin:auth_group_change", args=[group.pk])
    everything = {"name": "clerks", "permissions": [str(one.pk) for one in Permission.objects.all()]}
    assert client.get(page).status_code == 200
    assert client.post(page, everything).status_code == 403
    assert client.post(reverse("admin:auth_group_add"), {"name": "more"}).status_code == 403
    assert not group.permissions.exists()
    root = signed_in(UserFactory.create(is_superuser=True, is_staff=True))
    assert root.post(page, everything).status_code == 302
    told = AuditEntry.objects.get(action=Action.ACCOUNT_CHANGED)
    assert (told.subject, told.detail) == ("clerks", {"changed": ["permissions"]})


def test_only_a_site_admin_takes_off_a_second_factor_or_ends_a_session() -> None:
    root = UserFactory.create(is_superuser=True, is_staff=True)
    factor = Authenticator.objects.create(user=root, type="totp", data={"secret": "hidden"})
    signed_in(root)
    session = BrowserSession.objects.get(user=root)
    client, _ = clerk(
        *(f"{may}_{what}" for may in ("view", "delete") for what in ("authenticator", "browsersession"))
    )
    for name, row in (("mfa_authenticator", factor), ("tasks_app_browsersession", session)):
        assert client.get(reverse(f"admin:{name}_changelist")).status_code == 200
        gone = reverse(f"admin:{name}_delete", args=[row.pk])
        assert client.post(gone, {"post": "yes"}).status_code == 403
        assert type(row).objects.filter(pk=row.pk).exists()

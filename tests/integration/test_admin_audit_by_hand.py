"""What is done in the admin pages by hand is told there like anything else, and found by who did it (W4)."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from tasks_app.history.audit import record
from tasks_app.models import Action, ApiToken, AuditEntry, Invitation, Medium, Project, Role, Target, User
from tasks_app.services.projects.members import change_role, remove_member
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Client:
    return signed_in(User.objects.create_superuser("root"))


def clerk(*permissions: str) -> Client:
    """Somebody whom a site admin lets into the admin pages for some things."""
    user = UserFactory.create(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return signed_in(user)


def told() -> list[tuple[str, str, str, dict[str, Any]]]:
    """By whom, what, to what, and more about it."""
    rows = AuditEntry.objects.order_by("pk")
    return [(row.actor_name, row.action, row.subject, row.detail) for row in rows]


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:{name}", args=args)


def as_shown(client: Client, address: str) -> dict[str, Any]:
    """What the browser would send if nothing was changed."""
    shown = client.get(address).context
    given = {name: value for name, value in shown["adminform"].form.initial.items() if value is not None}
    for formset in shown["inline_admin_formsets"]:
        prefix = formset.formset.prefix
        given |= {f"{prefix}-TOTAL_FORMS": 0, f"{prefix}-INITIAL_FORMS": 0}
    return given


def delete(client: Client, model: str, pk: int, way: str) -> None:
    if way == "one":
        client.post(page(f"{model}_delete", pk), {"post": "yes"})
    else:
        chosen = {"action": "delete_selected", "_selected_action": [pk], "post": "yes"}
        client.post(page(f"{model}_changelist"), chosen)


WAYS = pytest.mark.parametrize("way", ["one", "selected"])


# ---- done by hand ----


@WAYS
def test_a_project_that_is_added_changed_and_removed(root: Client, way: str) -> None:
    none = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    root.post(
        page("tasks_app_project_add"), {"name": "shop", "source": "/srv/shop", "branch": "main", **none}
    )
    project = Project.objects.get()
    change = page("tasks_app_project_change", project.pk)
    assert root.post(change, {**as_shown(root, change), "branch": "next"}).status_code == 302
    root.post(change, as_shown(root, change))
    delete(root, "tasks_app_project", project.pk, way)
    assert told() == [
        ("root", "project_added", "shop", {"source": "/srv/shop"}),
        ("root", "settings_changed", "shop", {"changed": {"branch": ["main", "next"]}}),
        ("root", "project_removed", "shop", {"source": "/srv/shop"}),
    ]


def test_a_task_that_is_put_right(root: Client) -> None:
    task = TaskFactory.create(title="Round", threshold=3)
    given = {"title": "Round", "threshold": 5, "model": ""}
    root.post(page("tasks_app_task_change", task.pk), given)
    root.post(page("tasks_app_task_change", task.pk), given)
    assert told() == [("root", "task_changed", "Round", {"threshold": [3, 5]})]


@WAYS
def test_a_target_that_is_switched_off_and_removed(root: Client, way: str) -> None:
    project = ProjectFactory.create(name="shop")
    target = Target.objects.create(
        project=project, medium=Medium.WEBHOOK, name="builds", encrypted_url="x", shown="https://y/"
    )
    root.post(page("tasks_app_target_change", target.pk), {})
    delete(root, "tasks_app_target", target.pk, way)
    (switched, removed) = told()
    assert switched[:3] == removed[:3] == ("root", "notifications_changed", "shop")
    assert switched[3] == {"target": "builds", "active": [True, False]}
    assert removed[3] == {"target": "builds", "removed": "target"}


@WAYS
def test_an_account_that_is_removed(root: Client, way: str) -> None:
    delete(root, "tasks_app_user", UserFactory.create(username="ben").pk, way)
    assert told() == [("root", "account_changed", "ben", {"removed": "user"})]


@WAYS
def test_an_address_that_is_added_verified_and_removed(root: Client, way: str) -> None:
    ben = UserFactory.create(username="ben")
    root.post(page("account_emailaddress_add"), {"user": ben.pk, "email": "ben@example.org"})
    address = EmailAddress.objects.get()
    chosen = {"action": "make_verified", "_selected_action": [address.pk]}
    root.post(page("account_emailaddress_changelist"), chosen)
    root.post(page("account_emailaddress_changelist"), chosen)
    delete(root, "account_emailaddress", address.pk, way)
    known = {"email": "ben@example.org", "verified": False}
    assert told() == [
        ("root", "account_changed", "ben", known),
        ("root", "account_changed", "ben", {**known, "verified": True}),
        ("root", "account_changed", "ben", {"email": "ben@example.org", "removed": "email address"}),
    ]


# ---- what a clerk may not ----


def test_who_may_look_at_addresses_verifies_none() -> None:
    """Whoever proves a verified address to the provider of logins is logged in as the person."""
    address = EmailAddress.objects.create(user=UserFactory.create(), email="boss@example.org")
    chosen = {"action": "make_verified", "_selected_action": [address.pk]}
    clerk("view_emailaddress").post(page("account_emailaddress_changelist"), chosen)
    address.refresh_from_db()
    assert not address.verified


def test_who_may_look_at_tokens_revokes_none() -> None:
    token = ApiToken.objects.create(user=UserFactory.create(), name="nightly", digest="x")
    chosen = {"action": "revoke", "_selected_action": [token.pk]}
    clerk("view_apitoken").post(page("tasks_app_apitoken_changelist"), chosen)
    token.refresh_from_db()
    assert token.revoked_at is None


# ---- what follows from something else ----


@pytest.mark.parametrize("how", ["removed", "demoted"])
def test_invitations_that_end_with_a_role(how: str) -> None:
    boss, project = UserFactory.create(username="boss"), ProjectFactory.create(name="shop")
    MembershipFactory.create(project=project, user=boss, role=Role.MAINTAINER)
    ben = MembershipFactory.create(project=project, user__username="ben", role=Role.MAINTAINER)
    for number, by in enumerate((ben.user, ben.user, boss)):
        Invitation.objects.create(
            project=project, email=f"{number}@example.org", token_hash=str(number), invited_by=by
        )
    if how == "removed":
        remove_member(ben, by=acting(boss))
    else:
        change_role(ben, Role.VIEWER, by=acting(boss))
    ended = [(who, what) for who, action, what, _ in told() if action == Action.INVITATION_WITHDRAWN]
    assert ended == [("boss", "0@example.org"), ("boss", "1@example.org")]


# ---- finding ----


def test_entries_are_found_by_the_person(root: Client) -> None:
    ann, ben = UserFactory.create(username="ann", first_name="Ann B."), UserFactory.create(username="ben")
    record(Action.LOGGED_IN, by=ann)
    record(Action.LOGGED_IN, by=ben)
    record(Action.ASKED, actor_name="agent of plan")
    shown = root.get(page("tasks_app_auditentry_changelist"))
    assert "By user" in shown.text and "By time" in shown.text
    only = root.get(page("tasks_app_auditentry_changelist"), {"actor__id__exact": ann.pk})
    assert [entry.actor for entry in only.context["cl"].result_list] == [ann]
    nobody = root.get(page("tasks_app_auditentry_changelist"), {"actor__isnull": "True"})
    assert [entry.actor_name for entry in nobody.context["cl"].result_list] == ["agent of plan"]

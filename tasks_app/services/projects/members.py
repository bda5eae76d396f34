"""Add, change and remove the members of a project."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Invitation, Membership, Project, Role, User
from tasks_app.permissions import Principal, require_maintainer

#: Completes “Its maintainers …”.
MANAGE_MEMBERS = "manage members"


def add_member(project: Project, user: User, role: Role, *, by: Principal) -> Membership:
    """Give a user a role. Raises BadInput if the user has a role already."""
    require_maintainer(by, project, MANAGE_MEMBERS)
    if not user.is_active:
        raise BadInput(f"The account of {user.shown_name} is deactivated.")
    with transaction.atomic():
        membership, made = Membership.objects.get_or_create(
            project=project, user=user, defaults={"role": role}
        )
        if not made:
            raise BadInput(f"{user.shown_name} is already a {membership.role}.")
        record_role(membership, by=by.user)
    return membership


def give_role(project: Project, user: User, role: Role, *, by: Principal) -> Membership:
    """Give a user a role or change the role. Raises as `add_member` and `change_role` do."""
    membership = project.memberships.select_related("user", "project").filter(user=user).first()
    if membership is None:
        return add_member(project, user, role, by=by)
    change_role(membership, role, by=by)
    return membership


def change_role(membership: Membership, role: Role, *, by: Principal) -> None:
    """Change the role of a member. Raises BadInput if no maintainer would be left."""
    project = membership.project
    require_maintainer(by, project, MANAGE_MEMBERS)
    with transaction.atomic():
        before = _locked(membership).role
        if before == role:
            return
        if role != Role.MAINTAINER:
            _keep_a_maintainer(membership)
            _withdraw_invitations_of(membership, by=by.user)
        membership.role = role
        membership.save(update_fields=["role"])
        record_role(membership, by=by.user, before=before)


def remove_member(membership: Membership, *, by: Principal) -> None:
    """Remove a member. What the user did stays. Raises BadInput if no maintainer would be left."""
    require_maintainer(by, membership.project, MANAGE_MEMBERS)
    with transaction.atomic():
        _locked(membership)
        _keep_a_maintainer(membership)
        _withdraw_invitations_of(membership, by=by.user)
        record_no_role(membership, by=by.user)
        membership.delete()


def record_role(membership: Membership, *, by: User, before: str = "") -> None:
    name = membership.user.get_username()
    project, role = membership.project, membership.role
    record(Action.ROLE_GIVEN, by=by, project=project, subject=name, role=role, before=before)


def record_no_role(membership: Membership, *, by: User) -> None:
    name = membership.user.get_username()
    record(Action.ROLE_TAKEN, by=by, project=membership.project, subject=name, role=membership.role)


def _locked(membership: Membership) -> Membership:
    """Lock the rows of all members, so that two maintainers cannot remove each other at once."""
    rows = membership.project.memberships.select_for_update().order_by("pk")
    found = next((row for row in rows if row.pk == membership.pk), None)
    if found is None:
        raise BadInput("Somebody else has just removed this member.")
    return found


def _keep_a_maintainer(membership: Membership) -> None:
    maintainers = membership.project.memberships.filter(role=Role.MAINTAINER, user__is_active=True)
    if set(maintainers.values_list("pk", flat=True)) == {membership.pk}:
        raise BadInput(
            f"{membership.user.shown_name} is the last maintainer of {membership.project}. "
            "Make somebody else a maintainer first."
        )


def _withdraw_invitations_of(membership: Membership, *, by: User) -> None:
    """Withdraw the member's invitations, which a removed user could otherwise use to come back."""
    project = membership.project
    still_open = Invitation.objects.open().filter(project=project, invited_by=membership.user)
    for email in still_open.order_by("pk").values_list("email", flat=True):
        record(Action.INVITATION_WITHDRAWN, by=by, project=project, subject=email)
    still_open.update(withdrawn_at=timezone.now())

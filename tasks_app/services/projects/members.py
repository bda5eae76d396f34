"""Members of projects, and invitations."""

from __future__ import annotations

import logging
import secrets

from allauth.account.models import EmailAddress
from allauth.account.utils import filter_users_by_email
from django.conf import settings
from django.core.mail import send_mail
from django.db import IntegrityError, transaction
from django.template.loader import render_to_string
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Invitation, Membership, Project, Role, User
from tasks_app.models.account import LINK_LIFETIME, InvitationState, token_hash
from tasks_app.permissions import Principal, may_maintain, require_maintainer

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
        for group in membership.project.groups.filter(members=membership.user):
            group.members.remove(membership.user)
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


logger = logging.getLogger(__name__)

_RANK = {Role.VIEWER: 0, Role.MEMBER: 1, Role.MAINTAINER: 2}


def invite(project: Project, email: str, role: Role, *, by: Principal) -> tuple[Invitation, str]:
    """Invite an e-mail address or renew its invitation. Return the invitation and the token of its link.

    The token is not stored. Raises BadInput for the address of a member.
    """
    require_maintainer(by, project, MANAGE_MEMBERS)
    email = email.lower()
    if project.memberships.filter(user__in=_owners(email, confirmed=settings.SENDS_EMAIL)).exists():
        raise BadInput(f"A user with the address {email} is already a member.")
    with transaction.atomic():
        pending = project.invitations.pending().select_for_update().filter(email=email).first()
        invitation = pending or Invitation(project=project, email=email)
        return invitation, _send_out(invitation, role, by=by.user)


def invite_again(invitation: Invitation, *, by: Principal) -> str:
    """Replace the token and return the new one. Raises BadInput if the invitation was used or withdrawn."""
    require_maintainer(by, invitation.project, MANAGE_MEMBERS)
    with transaction.atomic():
        invitation = _lock_pending(invitation)
        return _send_out(invitation, Role(invitation.role), by=by.user)


def _send_out(invitation: Invitation, role: Role, *, by: User) -> str:
    token = secrets.token_urlsafe(32)
    invitation.role, invitation.invited_by, invitation.mailed = role, by, False
    invitation.token_hash, invitation.expires_at = token_hash(token), timezone.now() + LINK_LIFETIME
    try:
        with transaction.atomic():
            invitation.save()
    except IntegrityError:
        raise BadInput(f"Somebody else has just invited {invitation.email}.") from None
    record(Action.INVITED, by=by, project=invitation.project, subject=invitation.email, role=role)
    return token


def mail_invitation(invitation: Invitation, link: str) -> bool:
    """Mail the link. Return False if this installation sends no e-mail, or the mail failed."""
    if not settings.SENDS_EMAIL:
        return False
    text = render_to_string("projects/invitation_mail.txt", {"invitation": invitation, "link": link})
    try:
        send_mail(f"[Cat Herder] {invitation.project}: you are invited", text, None, [invitation.email])
    except OSError:
        logger.warning("an invitation could not be mailed", exc_info=True)
        return False
    # Only for this link: another one may exist by now, which was handed to the inviting user.
    sent = Invitation.objects.filter(pk=invitation.pk, token_hash=invitation.token_hash)
    sent.update(mailed=True)
    return True


def withdraw_invitation(invitation: Invitation, *, by: Principal) -> None:
    """Withdraw the invitation; its link stops working. Raises BadInput if it was used or withdrawn."""
    require_maintainer(by, invitation.project, MANAGE_MEMBERS)
    with transaction.atomic():
        invitation = _lock_pending(invitation)
        invitation.withdrawn_at = timezone.now()
        invitation.save(update_fields=["withdrawn_at"])
        project = invitation.project
        record(Action.INVITATION_WITHDRAWN, by=by.user, project=project, subject=invitation.email)


def _lock_pending(invitation: Invitation) -> Invitation:
    found = Invitation.objects.pending().select_for_update().filter(pk=invitation.pk).first()
    if found is None:
        raise BadInput("This invitation was accepted or withdrawn meanwhile.")
    return found


def state_of(invitation: Invitation) -> InvitationState:
    """Return `Invitation.state`, or withdrawn once the inviter may no longer invite."""
    state = invitation.state
    if state == "open" and not _inviter_may_still_invite(invitation):
        return "withdrawn"
    return state


def _inviter_may_still_invite(invitation: Invitation) -> bool:
    """Return whether the inviter is a maintainer: a removed one must not return through their own link."""
    by = invitation.invited_by
    return by is not None and by.is_active and may_maintain(Principal.unrestricted(by), invitation.project)


def find_invitation(token: str) -> Invitation | None:
    found = Invitation.objects.select_related("project", "invited_by").filter(token_hash=token_hash(token))
    return found.first()


def address_is_taken(invitation: Invitation) -> bool:
    """Return whether a user of this portal has its address, so that nobody else may join with it.

    Whoever follows a mailed link reads that mailbox, so an unconfirmed claim to the address does not count.
    """
    return bool(_owners(invitation.email, confirmed=invitation.mailed))


def _owners(email: str, *, confirmed: bool) -> list[int]:
    """Return the ids of users with the address; unless `confirmed`, also of users who did not confirm it."""
    if not confirmed:
        return [user.pk for user in filter_users_by_email(email)]
    return list(EmailAddress.objects.filter(email=email, verified=True).values_list("user_id", flat=True))


def accept_invitation(invitation: Invitation, *, by: User) -> Membership:
    """Join the project. A member keeps the role, or gets that of the invitation if it may do more.

    Raises BadInput if the link does not work any more.
    """
    with transaction.atomic():
        _use_up(invitation, by)
        project = invitation.project
        found, _ = Membership.objects.get_or_create(
            project=project, user=by, defaults={"role": invitation.role}
        )
        if _RANK[Role(found.role)] < _RANK[Role(invitation.role)]:
            found.role = invitation.role
            found.save(update_fields=["role"])
        record(Action.INVITATION_ACCEPTED, by=by, project=project, subject=invitation.email)
        record_role(found, by=by)
    return found


def accept_as_newcomer(invitation: Invitation, *, username: str, name: str, password: str) -> User:
    """Create an account for the invited person, and join. Raises BadInput if the link has expired."""
    with transaction.atomic():
        user = User(username=username, first_name=name, email=invitation.email)
        user.set_password(password)
        try:
            with transaction.atomic():
                user.save()
        except IntegrityError:
            raise BadInput("This user name is taken. Choose another.") from None
        if invitation.mailed:
            _end_claims_on(user.email, but_of=user)
        # A mailed link proves that the person reads the mailbox; a link that was handed over proves nothing.
        EmailAddress.objects.create(user=user, email=user.email, primary=True, verified=invitation.mailed)
        record(Action.ACCOUNT_MADE, by=user, subject=username, through="invitation")
        accept_invitation(invitation, by=user)
    return user


def _end_claims_on(email: str, *, but_of: User) -> None:
    """Remove the address from others who entered it and never confirmed it."""
    EmailAddress.objects.filter(email=email, verified=False).delete()
    for claimant in User.objects.filter(email__iexact=email).exclude(pk=but_of.pk):
        User.objects.filter(pk=claimant.pk).update(email="")
        changed = {"email": [email, ""]}
        record(Action.ACCOUNT_CHANGED, by=but_of, subject=claimant.get_username(), changed=changed)


def _use_up(invitation: Invitation, by: User) -> None:
    if not _inviter_may_still_invite(invitation):
        raise BadInput("The person who invited you may no longer do so. Ask a maintainer of the project.")
    used = {"accepted_at": timezone.now(), "accepted_by": by}
    if not Invitation.objects.open().filter(pk=invitation.pk).update(**used):
        raise BadInput("This invitation was used or withdrawn, or it has expired.")

"""Members of a project and invitations to it. Only its maintainers change them or see who is invited."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from ninja import Query, Router, Status

from tasks_app import permissions
from tasks_app.api.auth import doors, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import InvitationId, ProjectName, Username
from tasks_app.api.schemas.members import InvitationPage, MemberPage, NewInvitation, RoleIn
from tasks_app.models import Invitation, Project, Scope, User
from tasks_app.notifications.message import absolute_url, absolute_url_for
from tasks_app.reporting.schemas.members import InvitationMade, InvitationOut, MemberOut
from tasks_app.services import invitations as invitation_actions
from tasks_app.services import members as actions

router = Router(tags=["Members"])


@router.get("/projects/{project}/members", response=responses(MemberPage, 404), auth=doors(Scope.READ))
def list_members(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> MemberPage:
    """Who has which role. Site admins may do everything without one."""
    rows = permissions.project_named_or_404(principal_of(request), project).memberships.select_related("user")
    found, following = page_of(request, rows, paging, newest_first=False)
    return MemberPage(items=[MemberOut.of_membership(row) for row in found], next=following)


@router.put(
    "/projects/{project}/members/{username}", response=responses(MemberOut, 404), auth=doors(Scope.MANAGE)
)
def put_member(request: HttpRequest, project: ProjectName, username: Username, body: RoleIn) -> MemberOut:
    """Give somebody who has a login a role, or another one."""
    found = _managed(request, project)
    user = get_object_or_404(User, username=username)
    return MemberOut.of_membership(actions.give_role(found, user, body.role, by=principal_of(request)))


@router.delete(
    "/projects/{project}/members/{username}",
    response=responses(None, 404, status=204),
    auth=doors(Scope.MANAGE),
)
def remove_member(request: HttpRequest, project: ProjectName, username: Username) -> Status[None]:
    """Take somebody's role away; what the person did stays. The last maintainer cannot be removed."""
    rows = _managed(request, project).memberships.select_related("user", "project")
    actions.remove_member(get_object_or_404(rows, user__username=username), by=principal_of(request))
    return Status(204, None)


@router.get(
    "/projects/{project}/invitations", response=responses(InvitationPage, 404), auth=doors(Scope.MANAGE)
)
def list_invitations(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> InvitationPage:
    """Who is invited and has not come yet. For maintainers."""
    rows = _managed(request, project).invitations.pending().select_related("invited_by")
    found, following = page_of(request, rows, paging)
    return InvitationPage(items=[InvitationOut.of(row) for row in found], next=following)


@router.post(
    "/projects/{project}/invitations",
    response=responses(InvitationMade, 404, 409, 422, status=201),
    auth=doors(Scope.MANAGE),
)
@once
def create_invitation(
    request: HttpRequest, project: ProjectName, body: NewInvitation
) -> Status[InvitationMade]:
    """Invite an address to a project. The link is mailed or, where no e-mail is sent, told to you once."""
    found = permissions.project_named_or_404(principal_of(request), project)
    made, token = invitation_actions.invite(found, body.email, body.role, by=principal_of(request))
    return Status(201, _handed_over(request, made, token))


@router.post(
    "/projects/{project}/invitations/{invitation_id}/again",
    response=responses(InvitationMade, 404, 409, 422),
    auth=doors(Scope.MANAGE),
)
@once
def renew_invitation(
    request: HttpRequest, project: ProjectName, invitation_id: InvitationId
) -> Status[InvitationMade]:
    """A new link for another week; the old one stops working."""
    invitation = _pending(request, project, invitation_id)
    token = invitation_actions.invite_again(invitation, by=principal_of(request))
    invitation.refresh_from_db()
    return Status(200, _handed_over(request, invitation, token))


@router.delete(
    "/projects/{project}/invitations/{invitation_id}",
    response=responses(None, 404, status=204),
    auth=doors(Scope.MANAGE),
)
def withdraw_invitation(
    request: HttpRequest, project: ProjectName, invitation_id: InvitationId
) -> Status[None]:
    """Its link stops working."""
    invitation = _pending(request, project, invitation_id)
    invitation_actions.withdraw_invitation(invitation, by=principal_of(request))
    return Status(204, None)


def _managed(request: HttpRequest, name: str) -> Project:
    """Others learn that they are no maintainers before any person or invitation is looked up."""
    project = permissions.project_named_or_404(principal_of(request), name)
    permissions.require_maintainer(principal_of(request), project, actions.MANAGE_MEMBERS)
    return project


def _pending(request: HttpRequest, project: str, invitation_id: int) -> Invitation:
    rows = _managed(request, project).invitations.pending().select_related("project", "invited_by")
    return get_object_or_404(rows, pk=invitation_id)


def _handed_over(request: HttpRequest, invitation: Invitation, token: str) -> InvitationMade:
    """By mail to who is invited, else to the inviter, once."""
    path = reverse("invitation", args=[token])
    mailed = invitation_actions.mail_invitation(invitation, absolute_url(path))
    return InvitationMade.of(
        invitation, mailed=mailed, link=None if mailed else absolute_url_for(request, path)
    )

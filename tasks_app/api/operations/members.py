"""Members of a project and invitations to it. Only its maintainers change them or see who is invited."""

from __future__ import annotations

from typing import Annotated

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from ninja import Query, Router, Schema, Status
from pydantic import AfterValidator, Field

from tasks_app import permissions
from tasks_app.absolute_urls import absolute_url, absolute_url_for
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import Input, InvitationId, ProjectName, Storable, Username
from tasks_app.models import Invitation, Project, Role, Scope, User
from tasks_app.reporting.schemas.members import InvitationMade, InvitationOut, MemberOut
from tasks_app.services.projects import invitations as invitation_actions
from tasks_app.services.projects import members as actions


def _address(text: str) -> str:
    try:
        validate_email(text)
    except ValidationError as error:
        raise ValueError("must be an e-mail address") from error
    return text


class MemberPage(Schema):
    items: list[MemberOut] = Field(description="The project's members, the oldest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class RoleIn(Input):
    role: Role = Field(
        description="`viewer` can look, `member` can act, `maintainer` can also change settings and members."
    )


class NewInvitation(RoleIn):
    """An e-mail address and a role."""

    email: Annotated[Storable, Field(max_length=254), AfterValidator(_address)] = Field(
        description="The e-mail address; if it has an invitation, a new link replaces the old one.",
        examples=["ann@example.org"],
    )


class InvitationPage(Schema):
    items: list[InvitationOut] = Field(description="Pending invitations, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


router = Router(tags=["Members"])


@router.get(
    "/projects/{project}/members", response=responses(MemberPage, 404), auth=authenticators(Scope.READ)
)
def list_members(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> MemberPage:
    """List the members of a project with their roles. Site admins need no role."""
    rows = permissions.project_named_or_404(principal_of(request), project).memberships.select_related("user")
    found, following = page_of(request, rows, paging, newest_first=False)
    return MemberPage(items=[MemberOut.of_membership(row) for row in found], next=following)


@router.put(
    "/projects/{project}/members/{username}",
    response=responses(MemberOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def put_member(request: HttpRequest, project: ProjectName, username: Username, body: RoleIn) -> MemberOut:
    """Give a user a role in the project, or change it."""
    found = _managed(request, project)
    user = get_object_or_404(User, username=username)
    return MemberOut.of_membership(actions.give_role(found, user, body.role, by=principal_of(request)))


@router.delete(
    "/projects/{project}/members/{username}",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def remove_member(request: HttpRequest, project: ProjectName, username: Username) -> Status[None]:
    """Remove a member. What the user did stays. The last maintainer cannot be removed."""
    rows = _managed(request, project).memberships.select_related("user", "project")
    actions.remove_member(get_object_or_404(rows, user__username=username), by=principal_of(request))
    return Status(204, None)


@router.get(
    "/projects/{project}/invitations",
    response=responses(InvitationPage, 404),
    auth=authenticators(Scope.MANAGE),
)
def list_invitations(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> InvitationPage:
    """List the pending invitations. For maintainers."""
    rows = _managed(request, project).invitations.pending().select_related("invited_by")
    found, following = page_of(request, rows, paging)
    return InvitationPage(items=[InvitationOut.of(row) for row in found], next=following)


@router.post(
    "/projects/{project}/invitations",
    response=responses(InvitationMade, 404, 409, 422, status=201),
    auth=authenticators(Scope.MANAGE),
)
@once
def create_invitation(
    request: HttpRequest, project: ProjectName, body: NewInvitation
) -> Status[InvitationMade]:
    """Invite an e-mail address. The link is mailed or, without e-mail, returned in this response only."""
    found = permissions.project_named_or_404(principal_of(request), project)
    made, token = invitation_actions.invite(found, body.email, body.role, by=principal_of(request))
    return Status(201, _invitation_made(request, made, token))


@router.post(
    "/projects/{project}/invitations/{invitation_id}/again",
    response=responses(InvitationMade, 404, 409, 422),
    auth=authenticators(Scope.MANAGE),
)
@once
def renew_invitation(
    request: HttpRequest, project: ProjectName, invitation_id: InvitationId
) -> Status[InvitationMade]:
    """Renew an invitation: a new link for another week. The old one stops working."""
    invitation = _pending_invitation(request, project, invitation_id)
    token = invitation_actions.invite_again(invitation, by=principal_of(request))
    invitation.refresh_from_db()
    return Status(200, _invitation_made(request, invitation, token))


@router.delete(
    "/projects/{project}/invitations/{invitation_id}",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def withdraw_invitation(
    request: HttpRequest, project: ProjectName, invitation_id: InvitationId
) -> Status[None]:
    """Withdraw an invitation. Its link stops working."""
    invitation = _pending_invitation(request, project, invitation_id)
    invitation_actions.withdraw_invitation(invitation, by=principal_of(request))
    return Status(204, None)


def _managed(request: HttpRequest, name: str) -> Project:
    """Return the project. Raise NotAllowed to others than maintainers before anything else is looked up."""
    project = permissions.project_named_or_404(principal_of(request), name)
    permissions.require_maintainer(principal_of(request), project, actions.MANAGE_MEMBERS)
    return project


def _pending_invitation(request: HttpRequest, project: str, invitation_id: int) -> Invitation:
    rows = _managed(request, project).invitations.pending().select_related("project", "invited_by")
    return get_object_or_404(rows, pk=invitation_id)


def _invitation_made(request: HttpRequest, invitation: Invitation, token: str) -> InvitationMade:
    """Mail the link, or return it once if the portal sends no e-mail."""
    path = reverse("invitation", args=[token])
    mailed = invitation_actions.mail_invitation(invitation, absolute_url(path))
    return InvitationMade.of(
        invitation, mailed=mailed, link=None if mailed else absolute_url_for(request, path)
    )

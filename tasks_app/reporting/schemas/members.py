"""JSON models of members and invitations."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from tasks_app.models import Invitation, Membership, Role
from tasks_app.models.invitation import InvitationState
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none


class MemberOut(UserOut):
    role: Role = Field(description="viewer, member or maintainer.")

    @classmethod
    def of_membership(cls, membership: Membership) -> Self:
        return cls.of(membership.user, role=Role(membership.role))


class InvitationOut(Out):
    """An invitation to join a project by a link."""

    id: int = Field(description="The invitation's id.")
    email: str = Field(description="The e-mail address that is invited.")
    role: Role = Field(description="The role that it gives.")
    state: InvitationState = Field(description="`open`, or `expired` when its link is too old.")
    invited_by: UserOut | None = Field(description="Who invited.")
    created_at: DateTime = Field(description="When the address was first invited.")
    expires_at: DateTime = Field(description="Until when the link works.")
    mailed: bool = Field(description="Whether the link went to the address by e-mail.")

    @classmethod
    def of(cls, invitation: Invitation, **more: Any) -> Self:
        return cls(
            id=invitation.pk,
            email=invitation.email,
            role=Role(invitation.role),
            state=invitation.state,
            invited_by=user_or_none(invitation.invited_by),
            created_at=invitation.created_at,
            expires_at=invitation.expires_at,
            **{"mailed": invitation.mailed, **more},
        )


class InvitationMade(InvitationOut):
    link: str | None = Field(
        description="The link to hand over, if it could not be mailed; it is shown this once. "
        "Null when it was mailed, and when this answer is repeated for its Idempotency-Key."
    )

    def to_keep(self) -> Self:
        """Return a copy to store, without the secret link."""
        return self.model_copy(update={"link": None})

"""Members of a project, and invitations to it."""

from __future__ import annotations

from typing import Annotated, Self

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from ninja import Schema
from pydantic import AfterValidator, Field

from tasks_app.api.schemas.base import AT, Input, Person, Storable
from tasks_app.models import Role


def _address(text: str) -> str:
    try:
        validate_email(text)
    except ValidationError as error:
        raise ValueError("must be an e-mail address") from error
    return text


class Member(Person):
    role: Role = Field(description="viewer, member or maintainer.")


class MemberPage(Schema):
    items: list[Member] = Field(
        description="The project's members, in the order in which they got their first role."
    )
    next: str | None = Field(description="The address of the next page; null on the last.")


class RoleIn(Input):
    role: Role = Field(description="viewer looks, member acts, maintainer also changes settings and members.")


class NewInvitation(RoleIn):
    """Who is invited, and as what."""

    email: Annotated[Storable, Field(max_length=254), AfterValidator(_address)] = Field(
        description="Whom to invite; an address invited before gets a new link instead of the old one.",
        examples=["ann@example.org"],
    )


class InvitationFacts(Schema):
    """Somebody who may join a project by a link."""

    id: int = Field(description="The invitation's number.")
    email: str = Field(description="The address that is invited.")
    role: Role = Field(description="The role that it gives.")
    standing: str = Field(description="`open`, or `expired` when its link is too old.")
    invited_by: Person | None = Field(description="Who invited.")
    created_at: str = Field(description=f"When the address was first invited. {AT}")
    expires_at: str = Field(description=f"Until when the link works. {AT}")
    mailed: bool = Field(description="Whether the link went to the address by e-mail.")


class InvitationPage(Schema):
    items: list[InvitationFacts] = Field(
        description="Invitations that were neither accepted nor withdrawn, the newest first."
    )
    next: str | None = Field(description="The address of the next page; null on the last.")


class InvitationMade(InvitationFacts):
    link: str | None = Field(
        description="The link to hand over, if it could not be mailed; it is shown this once. "
        "Null when it was mailed, and when this answer is repeated for its Idempotency-Key."
    )

    def to_keep(self) -> Self:
        """The portal keeps no link that lets somebody in."""
        return self.model_copy(update={"link": None})

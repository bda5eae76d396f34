"""Input schemas about members and invitations, and pages of them."""

from __future__ import annotations

from typing import Annotated

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from ninja import Schema
from pydantic import AfterValidator, Field

from tasks_app.api.schemas.base import Input, Storable
from tasks_app.models import Role
from tasks_app.reporting.schemas.members import InvitationOut, MemberOut


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

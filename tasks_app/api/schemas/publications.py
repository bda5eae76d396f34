"""Input schemas about publications, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable
from tasks_app.models import CredentialKind
from tasks_app.reporting.schemas.publications import PublicationOut


class Publish(Input):
    """How to publish."""

    squash: Flag = Field(False, description="Publish one commit instead of the checkpoints.")
    update: Flag = Field(False, description="First merge the newest commit of the project's branch.")


class PublicationPage(Schema):
    items: list[PublicationOut] = Field(description="The task's publications, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class PublishingPatch(Input):
    """The changes. Fields that are left out stay as they are."""

    own_url: Annotated[Storable, Field(max_length=500)] | None = Field(
        None, description="Where results are published; empty: to the source. For site admins."
    )
    protected_branches: Annotated[Storable, Field(max_length=2000)] | None = Field(
        None, description="Patterns of branches that are never published to, one per line."
    )
    author: Annotated[Storable, Field(max_length=200)] | None = Field(
        None, description="The author of squashed commits, as `Name <address>`; empty: Cat Herder."
    )
    required_approvals: Annotated[int, Field(ge=0, le=20, strict=True)] | None = Field(
        None, description="Approvals that a result needs, not counting one by who started the task."
    )


class CredentialIn(Input):
    """The credential for the repository that results are published to."""

    kind: CredentialKind = Field(description="`token` for an https URL, `ssh_key` for an ssh URL.")
    secret: Annotated[Storable, Field(min_length=1, max_length=20_000)] = Field(
        description="The token, or the private key without a passphrase. It is never returned."
    )
    username: Annotated[Storable, Field(max_length=200)] = Field(
        "", description="For a token: the user name that belongs to it."
    )
    known_hosts: Annotated[Storable, Field(max_length=20_000)] = Field(
        "", description="For a key: the host keys of the server, as lines of `known_hosts`."
    )

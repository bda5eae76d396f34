"""Input schemas about publications, and pages of them."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable
from tasks_app.forges.port import ForgeKind
from tasks_app.models import CredentialKind
from tasks_app.reporting.schemas.publications import PublicationOut


class Publish(Input):
    """How to publish."""

    squash: Flag = Field(False, description="Publish one commit instead of the checkpoints.")
    update: Flag = Field(False, description="First merge the newest commit of the project's branch.")
    pull_request: Flag = Field(False, description="Then open a pull request, or update the one that is open.")
    draft: Flag = Field(False, description="Open the pull request as a draft.")
    reviewers: list[Annotated[Storable, Field(max_length=210)]] = Field(
        [], max_length=15, description="Users of the forge who are asked for reviews of the pull request."
    )


#: A request without a body.
WITHOUT_OPTIONS = Publish.model_validate({})


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
    forge: ForgeKind | Literal[""] | None = Field(
        None, description="What the repository is at; empty: as its host says."
    )
    forge_api_url: Annotated[Storable, Field(max_length=500)] | None = Field(
        None, description="The URL of the forge's API; empty: as its host says. For site admins."
    )
    pull_request_repository: Annotated[Storable, Field(max_length=200)] | None = Field(
        None, description="Where pull requests go, as `OWNER/NAME`; empty: to the repository itself."
    )
    required_approvals: Annotated[int, Field(ge=0, le=20, strict=True)] | None = Field(
        None, description="Approvals that a result needs, not counting one by who created the task."
    )


class CredentialIn(Input):
    """The credential for the repository that results are published to."""

    kind: CredentialKind = Field(description="`token` or `github_app` for an https URL, `ssh_key` for ssh.")
    secret: Annotated[Storable, Field(min_length=1, max_length=20_000)] = Field(
        description="The token, or the private key without a passphrase. It is never returned."
    )
    username: Annotated[Storable, Field(max_length=200)] = Field(
        "", description="For a token: the user name that belongs to it; for a GitHub app: its id."
    )
    known_hosts: Annotated[Storable, Field(max_length=20_000)] = Field(
        "", description="For a key: the host keys of the server, as lines of `known_hosts`."
    )
    api_token: Annotated[Storable, Field(max_length=20_000)] = Field(
        "", description="For a key: the token of the forge's API, for pull requests. It is never returned."
    )

"""JSON models of publications."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from tasks_app.forges.port import CheckState, ForgeKind, PullRequestState
from tasks_app.models import (
    CredentialKind,
    Project,
    PublicationState,
    PublishCredential,
)
from tasks_app.schemas.base import DateTime, Out, UserOut
from tasks_app.services.publishing.settings import (
    credential_fault,
    forge_address_of,
    stored_credential,
    target_of,
    webhook_url,
)


class CheckOut(Out):
    """The result of one check of the forge's CI."""

    name: str = Field(description="What CI calls it.")
    state: CheckState = Field(description="`skipped` says nothing about the code.")
    url: str = Field(description="Where CI shows it; may be empty.")


class PullRequestOut(Out):
    """A pull request, as the forge said when the portal last looked."""

    forge: ForgeKind = Field(validation_alias="kind", description="What kind of forge it is at.")
    number: int = Field(description="Its number there.")
    url: str = Field(validation_alias="web_url", description="Its page.")
    title: str = Field(description="Its title.")
    base: str = Field(description="The branch that it is to be merged into.")
    draft: bool = Field(description="Whether it is a draft.")
    state: PullRequestState = Field(description="Whether it is open, merged or closed.")
    ended_by: str = Field(description="Who merged or closed it there; empty if nobody is known.")
    head_commit: str = Field(description="The commit of its branch.")
    checks: list[CheckOut] = Field(description="CI's results for that commit.")
    looked_at: DateTime | None = Field(description="When the portal last began to look; null before.")
    fault: str = Field(description="Why the last look failed; else empty.")


class PublicationOut(Out):
    """One publication of a task's result."""

    id: int = Field(validation_alias="pk", description="The publication's id.")
    task: int = Field(validation_alias="task_id", description="The task's id.")
    state: PublicationState = Field(
        description="`pending`: a worker publishes it; `pushed`: the branch of the remote was at the commit; "
        "`refused`: nothing was changed there."
    )
    answer: str = Field(description="What the remote answered, or why it was not published.")
    url: str = Field(description="The repository that it is published to.")
    branch: str = Field(description="The branch there.")
    commit: str = Field(description="The result of the task.")
    squash: bool = Field(description="Whether the checkpoints are published as one commit.")
    message: str = Field(description="The message that was given for that commit; empty: the portal made it.")
    update: bool = Field(description="Whether the newest commit of the project's branch is merged first.")
    merged_commit: str = Field(description="That commit; empty until it is known.")
    published_commit: str = Field(description="The commit at the remote; empty until it is there.")
    pull_request: PullRequestOut | None = Field(
        validation_alias="opened",
        description="The pull request that was opened or updated; null if there is none.",
    )
    draft: bool = Field(description="Whether it was to be opened as a draft.")
    reviewers: list[str] = Field(description="Who was to be asked for reviews of it.")
    conflicts: list[str] = Field(
        description="The files in conflict, if it was refused because the result could not be updated."
    )
    fault: str = Field(
        description="What failed after the branch was pushed, such as opening the pull request; else empty."
    )
    requested_by: UserOut | None = Field(
        validation_alias="by", description="Who asked for it; null if nobody is known."
    )
    by_pipeline: bool = Field(
        description="Whether the pipeline asked for it, on behalf of who created the task."
    )
    requested_at: DateTime = Field(description="When it was asked for.")
    ended_at: DateTime | None = Field(description="When it ended; null while it is pending.")


class CredentialOut(Out):
    """A stored credential, without its secret, which nobody can read again."""

    kind: CredentialKind = Field(
        description="`token`: user name and token; `ssh_key`: a private key; `github_app`: an app's key."
    )
    url: str = Field(description="The only repository that it is used for.")
    shown: str = Field(description="The user name, or the fingerprint of the key.")
    known_hosts: str = Field(description="For a key: the host keys that the server may have.")
    has_api_token: bool = Field(description="For a key: whether a token of the forge's API is stored too.")
    stored_by: UserOut | None = Field(description="Who stored it; null if nobody is known.")
    stored_at: DateTime = Field(description="When it was stored.")

    @staticmethod
    def resolve_has_api_token(stored: PublishCredential) -> bool:
        return bool(stored.encrypted_api_token)


class ForgeWebhookOut(Out):
    """The webhook that a project's forge calls when something happens to a pull request."""

    url: str = Field(description="What is entered at the forge; a path if `CATHERDER_URL` is not set.")
    secret: str = Field(description="With which the forge signs. It is told this once.")

    @staticmethod
    def resolve_url(project: Project) -> str:
        return webhook_url(project)


class PublishingOut(Out):
    """Where and how the results of a project are published."""

    url: str = Field(description="The path or URL that results are published to.")
    own_url: str = Field(
        validation_alias="publish_url",
        description="The same if it is not the source of the project; else empty.",
    )
    protected_branches: str = Field(
        description="Patterns of branches that are never published to, one per line. The default branch is "
        "always protected."
    )
    author: str = Field(
        validation_alias="publish_author", description="The author of squashed commits; empty: Cat Herder."
    )
    forge: ForgeKind | None = Field(description="What the repository is at; null if that is not known.")
    forge_api_url: str = Field(description="The URL of its API; empty if there is none.")
    pull_request_repository: str = Field(
        description="Where pull requests go, if the repository is a fork; else empty."
    )
    required_approvals: int = Field(
        description="Approvals that a result needs before it is published, not by who created the task."
    )
    credential: CredentialOut | None = Field(description="The stored credential; null if there is none.")
    fault: str = Field(description="Why the stored credential cannot be used; else empty.")
    webhook_url: str = Field(description="What the forge calls; empty if there is no webhook.")
    webhook_called_at: DateTime | None = Field(
        description="When the forge last made a signed call; null if it did not yet."
    )

    @classmethod
    def from_row(cls, project: Project, /, **more: Any) -> Self:
        forge, forge_api_url, called_url = None, "", ""
        if address := forge_address_of(project):
            forge, forge_api_url = address.kind, address.api_url
        if project.encrypted_webhook_secret:
            called_url = webhook_url(project)
        return super().from_row(
            project,
            url=target_of(project),
            forge=forge,
            forge_api_url=forge_api_url,
            credential=stored_credential(project),
            fault=credential_fault(project),
            webhook_url=called_url,
            **more,
        )

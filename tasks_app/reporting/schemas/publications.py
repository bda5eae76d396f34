"""JSON models of publications."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.forges.port import CheckState, ForgeKind, PullRequestState
from tasks_app.models import (
    CredentialKind,
    Project,
    Publication,
    PublicationState,
    PublishCredential,
    PullRequest,
)
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none
from tasks_app.services.publishing.forge_webhooks import webhook_url
from tasks_app.services.publishing.settings import (
    credential_fault,
    forge_address_of,
    stored_credential,
    target_of,
)


class CheckOut(Out):
    """The result of one check of the forge's CI."""

    name: str = Field(description="What CI calls it.")
    state: CheckState = Field(description="`skipped` says nothing about the code.")
    url: str = Field(description="Where CI shows it; may be empty.")


class PullRequestOut(Out):
    """A pull request, as the forge said when the portal last looked."""

    forge: ForgeKind = Field(description="What kind of forge it is at.")
    number: int = Field(description="Its number there.")
    url: str = Field(description="Its page.")
    title: str = Field(description="Its title.")
    base: str = Field(description="The branch that it is to be merged into.")
    draft: bool = Field(description="Whether it is a draft.")
    state: PullRequestState = Field(description="Whether it is open, merged or closed.")
    ended_by: str = Field(description="Who merged or closed it there; empty if nobody is known.")
    head_commit: str = Field(description="The commit of its branch.")
    checks: list[CheckOut] = Field(description="CI's results for that commit.")
    looked_at: DateTime | None = Field(description="When the portal last began to look; null before.")
    fault: str = Field(description="Why the last look failed; else empty.")

    @classmethod
    def of(cls, row: PullRequest) -> Self:
        return cls(
            forge=ForgeKind(row.kind),
            number=row.number,
            url=row.web_url,
            title=row.title,
            base=row.base,
            draft=row.draft,
            state=PullRequestState(row.state),
            ended_by=row.ended_by,
            head_commit=row.head_commit,
            checks=[CheckOut(**check) for check in row.checks],
            looked_at=row.looked_at,
            fault=row.fault,
        )


class PublicationOut(Out):
    """One publication of a task's result."""

    id: int = Field(description="The publication's id.")
    task: int = Field(description="The task's id.")
    state: PublicationState = Field(
        description="`pending`: a worker publishes it; `pushed`: the branch of the remote was at the commit; "
        "`refused`: nothing was changed there."
    )
    answer: str = Field(description="What the remote answered, or why it was not published.")
    url: str = Field(description="The repository that it is published to.")
    branch: str = Field(description="The branch there.")
    commit: str = Field(description="The result of the task.")
    squash: bool = Field(description="Whether the checkpoints are published as one commit.")
    update: bool = Field(description="Whether the newest commit of the project's branch is merged first.")
    merged_commit: str = Field(description="That commit; empty until it is known.")
    published_commit: str = Field(description="The commit at the remote; empty until it is there.")
    pull_request: PullRequestOut | None = Field(
        description="The pull request that was opened or updated; null if there is none."
    )
    draft: bool = Field(description="Whether it was to be opened as a draft.")
    reviewers: list[str] = Field(description="Who was to be asked for reviews of it.")
    conflicts: list[str] = Field(
        description="The files in conflict, if it was refused because the result could not be updated."
    )
    fault: str = Field(
        description="What failed after the branch was pushed, such as opening the pull request; else empty."
    )
    requested_by: UserOut | None = Field(description="Who asked for it; null if nobody is known.")
    by_pipeline: bool = Field(
        description="Whether the pipeline asked for it, on behalf of who created the task."
    )
    requested_at: DateTime = Field(description="When it was asked for.")
    ended_at: DateTime | None = Field(description="When it ended; null while it is pending.")

    @classmethod
    def of(cls, publication: Publication) -> Self:
        return cls(
            id=publication.pk,
            task=publication.task_id,
            state=PublicationState(publication.state),
            answer=publication.answer,
            url=publication.url,
            branch=publication.branch,
            commit=publication.commit,
            squash=publication.squash,
            update=publication.update,
            merged_commit=publication.merged_commit,
            published_commit=publication.published_commit,
            pull_request=PullRequestOut.of(publication.opened) if publication.opened else None,
            draft=publication.draft,
            reviewers=publication.reviewers,
            conflicts=publication.conflicts,
            fault=publication.fault,
            requested_by=user_or_none(publication.by),
            by_pipeline=publication.by_pipeline,
            requested_at=publication.requested_at,
            ended_at=publication.ended_at,
        )


class CredentialOut(Out):
    """A stored credential, without its secret, which nobody can read again."""

    kind: CredentialKind = Field(
        description="`token`: user name and token; `ssh_key`: a private key; `github_app`: that of an app."
    )
    url: str = Field(description="The only repository that it is used for.")
    shown: str = Field(description="The user name, or the fingerprint of the key.")
    known_hosts: str = Field(description="For a key: the host keys that the server may have.")
    has_api_token: bool = Field(description="For a key: whether a token of the forge's API is stored too.")
    stored_by: UserOut | None = Field(description="Who stored it; null if nobody is known.")
    stored_at: DateTime = Field(description="When it was stored.")

    @classmethod
    def of(cls, stored: PublishCredential) -> Self:
        return cls(
            kind=CredentialKind(stored.kind),
            url=stored.url,
            shown=stored.shown,
            known_hosts=stored.known_hosts,
            has_api_token=bool(stored.encrypted_api_token),
            stored_by=user_or_none(stored.stored_by),
            stored_at=stored.stored_at,
        )


class ForgeWebhookOut(Out):
    """The webhook that a project's forge calls when something happens to a pull request."""

    url: str = Field(description="What is entered at the forge; a path if `CATHERDER_URL` is not set.")
    secret: str = Field(description="With which the forge signs. It is told this once.")

    @classmethod
    def of(cls, project: Project, *, secret: str) -> Self:
        return cls(url=webhook_url(project), secret=secret)


class PublishingOut(Out):
    """Where and how the results of a project are published."""

    url: str = Field(description="The path or URL that results are published to.")
    own_url: str = Field(description="The same if it is not the source of the project; else empty.")
    protected_branches: str = Field(
        description="Patterns of branches that are never published to, one per line. The default branch is "
        "always protected."
    )
    author: str = Field(description="The author of squashed commits; empty: Cat Herder.")
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
    def of(cls, project: Project) -> Self:
        stored, address = stored_credential(project), forge_address_of(project)
        return cls(
            url=target_of(project),
            own_url=project.publish_url,
            protected_branches=project.protected_branches,
            author=project.publish_author,
            forge=address.kind if address else None,
            forge_api_url=address.api_url if address else "",
            pull_request_repository=project.pull_request_repository,
            required_approvals=project.required_approvals,
            credential=CredentialOut.of(stored) if stored else None,
            fault=credential_fault(project),
            webhook_url=webhook_url(project) if project.encrypted_webhook_secret else "",
            webhook_called_at=project.webhook_called_at,
        )

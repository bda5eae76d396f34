"""JSON models of publications."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from tasks_app.models import CredentialKind, Project, Publication, PublicationState, PublishCredential
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none
from tasks_app.services.publish_settings import credential_fault, stored_credential, target_of


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
    requested_by: UserOut | None = Field(description="Who asked for it; null if nobody is known.")
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
            requested_by=user_or_none(publication.by),
            requested_at=publication.requested_at,
            ended_at=publication.ended_at,
        )


class CredentialOut(Out):
    """A stored credential, without its secret, which nobody can read again."""

    kind: CredentialKind = Field(description="`token`: a user name and a token; `ssh_key`: a private key.")
    url: str = Field(description="The only repository that it is used for.")
    shown: str = Field(description="The user name, or the fingerprint of the key.")
    known_hosts: str = Field(description="For a key: the host keys that the server may have.")
    stored_by: UserOut | None = Field(description="Who stored it; null if nobody is known.")
    stored_at: DateTime = Field(description="When it was stored.")

    @classmethod
    def of(cls, stored: PublishCredential) -> Self:
        return cls(
            kind=CredentialKind(stored.kind),
            url=stored.url,
            shown=stored.shown,
            known_hosts=stored.known_hosts,
            stored_by=user_or_none(stored.stored_by),
            stored_at=stored.stored_at,
        )


class PublishingOut(Out):
    """Where and how the results of a project are published."""

    url: str = Field(description="The path or URL that results are published to.")
    own_url: str = Field(description="The same if it is not the source of the project; else empty.")
    protected_branches: str = Field(
        description="Patterns of branches that are never published to, one per line. The default branch is "
        "always protected."
    )
    author: str = Field(description="The author of squashed commits; empty: Cat Herder.")
    required_approvals: int = Field(
        description="Approvals that a result needs before it is published, not by who started the task."
    )
    credential: CredentialOut | None = Field(description="The stored credential; null if there is none.")
    fault: str = Field(description="Why the stored credential cannot be used; else empty.")

    @classmethod
    def of(cls, project: Project) -> Self:
        stored = stored_credential(project)
        return cls(
            url=target_of(project),
            own_url=project.publish_url,
            protected_branches=project.protected_branches,
            author=project.publish_author,
            required_approvals=project.required_approvals,
            credential=CredentialOut.of(stored) if stored else None,
            fault=credential_fault(project),
        )

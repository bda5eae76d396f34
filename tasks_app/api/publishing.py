"""Operations on publications of tasks, and on where and how a project publishes."""

from __future__ import annotations

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import Flag, Input, Paging, ProjectName, Storable, TaskId, page_of, responses
from tasks_app.api.idempotency import once
from tasks_app.forges.port import ForgeKind
from tasks_app.models import CredentialKind, Scope
from tasks_app.schemas.publishing import (
    CredentialOut,
    ForgeWebhookOut,
    PublicationOut,
    PublishingOut,
)
from tasks_app.services.publishing import settings as actions
from tasks_app.services.publishing.publications import LONGEST_MESSAGE, publish
from tasks_app.services.publishing.settings import create_webhook_secret, remove_webhook_secret


class Publish(Input):
    """How to publish."""

    squash: Flag = Field(False, description="Publish one commit instead of the checkpoints.")
    update: Flag = Field(False, description="First merge the newest commit of the project's branch.")
    pull_request: Flag = Field(False, description="Then open a pull request, or update the one that is open.")
    draft: Flag = Field(False, description="Open the pull request as a draft.")
    message: Annotated[Storable, Field(max_length=LONGEST_MESSAGE)] = Field(
        "", description="The message of the one commit; empty: what the task changed, by its agent's account."
    )
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


router = Router(tags=["Publishing"])


@router.post(
    "/tasks/{task_id}/publish",
    response=responses(PublicationOut, 404, 409, 422, status=202),
    auth=authenticators(Scope.WRITE),
)
@once
def publish_task(
    request: HttpRequest, task_id: TaskId, body: Publish = WITHOUT_OPTIONS
) -> Status[PublicationOut]:
    """Publish the result of a task that is done: a worker pushes its branch to the project's repository.

    The publication shows the outcome when it has ended. A commit that is there already is not pushed again.
    """
    principal = principal_of(request)
    task = permissions.task_or_404(principal, task_id)
    made = publish(task, by=principal, **body.model_dump())
    return Status(202, PublicationOut.from_row(made))


@router.get(
    "/tasks/{task_id}/publications", response=responses(PublicationPage, 404), auth=authenticators(Scope.READ)
)
def list_publications(request: HttpRequest, task_id: TaskId, paging: Query[Paging]) -> PublicationPage:
    """List the publications of a task, the newest first."""
    rows = permissions.task_or_404(principal_of(request), task_id).publications.select_related("by", "opened")
    found, following = page_of(request, rows, paging)
    return PublicationPage(items=[PublicationOut.from_row(row) for row in found], next=following)


@router.get(
    "/projects/{project}/publishing", response=responses(PublishingOut, 404), auth=authenticators(Scope.READ)
)
def get_publishing(request: HttpRequest, project: ProjectName) -> PublishingOut:
    """Return where and how the results of a project are published."""
    return PublishingOut.from_row(permissions.project_named_or_404(principal_of(request), project))


@router.patch(
    "/projects/{project}/publishing",
    response=responses(PublishingOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def change_publishing(request: HttpRequest, project: ProjectName, body: PublishingPatch) -> PublishingOut:
    """Change where and how the results of a project are published."""
    found = permissions.project_named_or_404(principal_of(request), project)
    changes = body.model_dump(exclude={"own_url"})
    actions.change_publishing(found, url=body.own_url, **changes, by=principal_of(request))
    return PublishingOut.from_row(found)


@router.put(
    "/projects/{project}/publishing/credential",
    response=responses(CredentialOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def store_credential(request: HttpRequest, project: ProjectName, body: CredentialIn) -> CredentialOut:
    """Store the credential for publishing, in place of an earlier one. The secret is never returned."""
    found = permissions.project_named_or_404(principal_of(request), project)
    new = actions.NewCredential(body.kind, body.secret, body.username, body.known_hosts, body.api_token)
    return CredentialOut.from_row(actions.store_credential(found, new, by=principal_of(request)))


@router.delete(
    "/projects/{project}/publishing/credential",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def remove_credential(request: HttpRequest, project: ProjectName) -> Status[None]:
    """Remove the credential for publishing, if there is one."""
    found = permissions.project_named_or_404(principal_of(request), project)
    actions.remove_credential(found, by=principal_of(request))
    return Status(204, None)


@router.put(
    "/projects/{project}/publishing/webhook",
    response=responses(ForgeWebhookOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def create_forge_webhook(request: HttpRequest, project: ProjectName) -> ForgeWebhookOut:
    """Make the secret of the webhook that the forge calls, in place of an earlier one, and return it once."""
    found = permissions.project_named_or_404(principal_of(request), project)
    return ForgeWebhookOut.from_row(found, secret=create_webhook_secret(found, by=principal_of(request)))


@router.delete(
    "/projects/{project}/publishing/webhook",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def remove_forge_webhook(request: HttpRequest, project: ProjectName) -> Status[None]:
    """Accept no more calls of the forge."""
    found = permissions.project_named_or_404(principal_of(request), project)
    remove_webhook_secret(found, by=principal_of(request))
    return Status(204, None)

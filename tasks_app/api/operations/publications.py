"""Operations on publications of tasks, and on where and how a project publishes."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Query, Router, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import ProjectName, TaskId
from tasks_app.api.schemas.publications import (
    WITHOUT_OPTIONS,
    CredentialIn,
    PublicationPage,
    Publish,
    PublishingPatch,
)
from tasks_app.models import Scope
from tasks_app.reporting.schemas.publications import (
    CredentialOut,
    ForgeWebhookOut,
    PublicationOut,
    PublishingOut,
)
from tasks_app.services.publishing import settings as actions
from tasks_app.services.publishing.forge_webhooks import create_webhook_secret, remove_webhook_secret
from tasks_app.services.publishing.publications import publish

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
    return Status(202, PublicationOut.of(made))


@router.get(
    "/tasks/{task_id}/publications", response=responses(PublicationPage, 404), auth=authenticators(Scope.READ)
)
def list_publications(request: HttpRequest, task_id: TaskId, paging: Query[Paging]) -> PublicationPage:
    """List the publications of a task, the newest first."""
    rows = permissions.task_or_404(principal_of(request), task_id).publications.select_related("by", "opened")
    found, following = page_of(request, rows, paging)
    return PublicationPage(items=[PublicationOut.of(row) for row in found], next=following)


@router.get(
    "/projects/{project}/publishing", response=responses(PublishingOut, 404), auth=authenticators(Scope.READ)
)
def get_publishing(request: HttpRequest, project: ProjectName) -> PublishingOut:
    """Return where and how the results of a project are published."""
    return PublishingOut.of(permissions.project_named_or_404(principal_of(request), project))


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
    return PublishingOut.of(found)


@router.put(
    "/projects/{project}/publishing/credential",
    response=responses(CredentialOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def store_credential(request: HttpRequest, project: ProjectName, body: CredentialIn) -> CredentialOut:
    """Store the credential for publishing, in place of an earlier one. The secret is never returned."""
    found = permissions.project_named_or_404(principal_of(request), project)
    new = actions.NewCredential(body.kind, body.secret, body.username, body.known_hosts, body.api_token)
    return CredentialOut.of(actions.store_credential(found, new, by=principal_of(request)))


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
    return ForgeWebhookOut.of(found, secret=create_webhook_secret(found, by=principal_of(request)))


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

"""Operations on a project's webhooks and chats, their deliveries, and your notification settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import time
from typing import Annotated

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import (
    DeliveryId,
    Flag,
    Input,
    Paging,
    ProjectName,
    Storable,
    TargetId,
    page_of,
    responses,
)
from tasks_app.api.idempotency import once
from tasks_app.core.errors import BadInput
from tasks_app.models import Delivery, Digest, Project, ProjectSelection, Scope, Target, User
from tasks_app.notifications import targets as actions
from tasks_app.notifications.preferences import (
    NotificationSettings,
    notification_settings_of,
    save_preferences,
)
from tasks_app.permissions import Principal
from tasks_app.schemas.notifications import (
    DeliveryOut,
    PreferencesOut,
    ProjectMedium,
    Subscriptions,
    TargetMade,
    TargetOut,
    TaskEventType,
)

EventTypes = Annotated[list[TaskEventType], Field(min_length=1, max_length=len(TaskEventType))]
TargetName = Annotated[Storable, Field(min_length=1, max_length=60, pattern=r"^[^\x00]*\S[^\x00]*$")]


class TargetPage(Schema):
    items: list[TargetOut] = Field(description="Targets, the oldest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NewTarget(Input):
    medium: ProjectMedium = Field(description="A webhook or a chat.")
    name: TargetName = Field(description="Its name.", examples=["team chat"])
    url: Annotated[Storable, Field(min_length=1, max_length=1000)] = Field(
        description="An https URL, or the URL of a chat service as Apprise writes it.",
        examples=["https://example.org/hook"],
    )
    event_types: EventTypes = Field(description="The events that it receives.")


class TargetIn(Input):
    name: TargetName = Field(description="Its name.")
    event_types: EventTypes = Field(description="The events that it receives.")
    active: Flag = Field(description="Whether messages are sent to it.")


class DeliveryPage(Schema):
    items: list[DeliveryOut] = Field(description="Deliveries, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class PreferencesPatch(Input):
    """The changes. Fields that are left out stay as they are."""

    subscriptions: Subscriptions = Field({}, description="By event and medium: `off`, `mine` or `all`.")
    project_selection: ProjectSelection = Field(
        ProjectSelection.MINE, description="Which projects: `mine`, `all` or `chosen`."
    )
    projects: list[Annotated[Storable, Field(max_length=60)]] = Field(
        [], max_length=1000, description="The names of the chosen projects."
    )
    time_zone: Annotated[Storable, Field(max_length=64)] = Field("UTC", examples=["Europe/Berlin"])
    quiet_from: Clock | None = Field(None, description="For example 22:00; null for no quiet hours.")
    quiet_until: Clock | None = Field(None, description="For example 07:00.")
    digest: Digest = Field(Digest.AT_ONCE, description="`at_once`, `hourly` or `daily`.")
    digest_at: Clock | None = Field(None, description="The time of the daily e-mail.")


router = Router(tags=["Notifications"])


@router.get(
    "/projects/{project}/targets", response=responses(TargetPage, 404), auth=authenticators(Scope.READ)
)
def list_targets(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> TargetPage:
    """List the webhooks and chats of a project."""
    rows = Target.objects.filter(project=permissions.project_named_or_404(principal_of(request), project))
    found, following = page_of(request, rows, paging, newest_first=False)
    return TargetPage(items=[TargetOut.from_row(row) for row in found], next=following)


@router.post(
    "/projects/{project}/targets",
    response=responses(TargetMade, 404, 409, 422, status=201),
    auth=authenticators(Scope.MANAGE),
)
@once
def add_target(request: HttpRequest, project: ProjectName, body: NewTarget) -> Status[TargetMade]:
    """Add a webhook or chat. The secret that signs its messages is returned in this response only."""
    new = actions.NewTarget(body.medium, body.name, body.url, body.event_types)
    made, secret = actions.add_target(_managed(request, project), new, by=principal_of(request))
    return Status(201, TargetMade.from_row(made, secret=secret))


@router.put(
    "/projects/{project}/targets/{target_id}",
    response=responses(TargetOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def change_target(
    request: HttpRequest, project: ProjectName, target_id: TargetId, body: TargetIn
) -> TargetOut:
    """Change the name and events of a target, or switch it off."""
    target = _target_of(request, project, target_id)
    actions.change_target(
        target, name=body.name, event_types=body.event_types, active=body.active, by=principal_of(request)
    )
    return TargetOut.from_row(target)


@router.post(
    "/projects/{project}/targets/{target_id}/secret",
    response=responses(TargetMade, 404),
    auth=authenticators(Scope.MANAGE),
)
def renew_secret(request: HttpRequest, project: ProjectName, target_id: TargetId) -> TargetMade:
    """Renew the secret of a webhook. It signs messages from now on and is returned in this response only."""
    target = _target_of(request, project, target_id)
    secret = actions.renew_secret(target, by=principal_of(request))
    return TargetMade.from_row(target, secret=secret)


@router.delete(
    "/projects/{project}/targets/{target_id}",
    response=responses(None, 404, status=204),
    auth=authenticators(Scope.MANAGE),
)
def remove_target(request: HttpRequest, project: ProjectName, target_id: TargetId) -> Status[None]:
    """Remove a target with its log."""
    actions.remove_target(_target_of(request, project, target_id), by=principal_of(request))
    return Status(204, None)


@router.post(
    "/projects/{project}/targets/{target_id}/test",
    response=responses(DeliveryOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def try_target(request: HttpRequest, project: ProjectName, target_id: TargetId) -> DeliveryOut:
    """Send a test. The delivery shows the result later."""
    target = _target_of(request, project, target_id)
    return DeliveryOut.from_row(actions.try_target(target, by=principal_of(request)))


@router.get(
    "/projects/{project}/deliveries", response=responses(DeliveryPage, 404), auth=authenticators(Scope.READ)
)
def list_deliveries(request: HttpRequest, project: ProjectName, paging: Query[Paging]) -> DeliveryPage:
    """List the deliveries to a project's targets, the newest first."""
    seen = permissions.project_named_or_404(principal_of(request), project)
    rows = Delivery.objects.filter(target__project=seen).with_events()
    found, following = page_of(request, rows, paging)
    return DeliveryPage(items=[DeliveryOut.from_row(row) for row in found], next=following)


@router.post(
    "/projects/{project}/deliveries/{delivery_id}/again",
    response=responses(DeliveryOut, 404),
    auth=authenticators(Scope.MANAGE),
)
def send_again(request: HttpRequest, project: ProjectName, delivery_id: DeliveryId) -> DeliveryOut:
    """Send a delivery now that waits or has failed."""
    rows = Delivery.objects.filter(target__project=_managed(request, project))
    related = rows.with_events().select_related("target__project")
    delivery = get_object_or_404(related, pk=delivery_id)
    actions.send_again(delivery, by=principal_of(request))
    delivery.refresh_from_db()
    return DeliveryOut.from_row(delivery)


@router.get("/me/preferences", response=responses(PreferencesOut), auth=authenticators(Scope.READ))
def get_preferences(request: HttpRequest) -> PreferencesOut:
    """Return your notification settings."""
    return _preferences(principal_of(request))


@router.patch("/me/preferences", response=responses(PreferencesOut), auth=authenticators(Scope.MANAGE))
def change_preferences(request: HttpRequest, body: PreferencesPatch) -> PreferencesOut:
    """Change your notification settings. Your own chat is set on the page. Not with a restricted token."""
    principal = principal_of(request)
    try:
        save_preferences(principal, _merged_settings(principal, body))
    except BadInput as error:
        raise BadInput(error.message, where=f"body.{error.where}") from None
    return _preferences(replace(principal, user=User.objects.get(pk=principal.user.pk)))


def _managed(request: HttpRequest, name: str) -> Project:
    """Return the project. Raise NotAllowed to others than maintainers before anything else is looked up."""
    project = permissions.project_named_or_404(principal_of(request), name)
    permissions.require_maintainer(principal_of(request), project, actions.MANAGE_NOTIFICATIONS)
    return project


def _target_of(request: HttpRequest, project: str, target_id: int) -> Target:
    rows = Target.objects.filter(project=_managed(request, project)).select_related("project")
    return get_object_or_404(rows, pk=target_id)


def _preferences(principal: Principal) -> PreferencesOut:
    choice = notification_settings_of(principal)
    chat = Target.objects.filter(user=principal.user).first()
    return PreferencesOut.model_validate(
        {
            "subscriptions": choice.subscriptions,
            "project_selection": choice.project_selection,
            "projects": sorted(project.name for project in choice.projects),
            "time_zone": choice.time_zone,
            "quiet_from": _hours_and_minutes(choice.quiet_from),
            "quiet_until": _hours_and_minutes(choice.quiet_until),
            "digest": choice.digest,
            "digest_at": _hours_and_minutes(choice.digest_at),
            "chat": chat.shown if chat else None,
        }
    )


def _hours_and_minutes(at: time | None) -> str | None:
    if at is None:
        return None
    return f"{at:%H:%M}"


def _merged_settings(principal: Principal, body: PreferencesPatch) -> NotificationSettings:
    """Return the present settings with those that the body names."""
    choice = notification_settings_of(principal)
    changes = body.model_dump(exclude_unset=True)
    for name in changes.keys() & {"quiet_from", "quiet_until", "digest_at"}:
        changes[name] = time.fromisoformat(changes[name]) if changes[name] else None
    if "subscriptions" in changes:
        changes["subscriptions"] = {
            event_type: {**media, **changes["subscriptions"].get(event_type, {})}
            for event_type, media in choice.subscriptions.items()
        }
    if "projects" in changes:
        changes["projects"] = _projects_named(principal, changes["projects"])
    return replace(choice, **changes)


def _projects_named(principal: Principal, names: list[str]) -> list[Project]:
    found = list(permissions.projects_visible_to(principal).filter(name__in=names))
    if missing := set(names) - {project.name for project in found}:
        raise BadInput(f"There is no project “{min(missing)}” that you may see.", where="projects")
    return found

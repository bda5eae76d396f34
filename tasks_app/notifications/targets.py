"""Actions on the webhooks and chats of a project, and on personal chats."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.encryption import encrypt
from tasks_app.history.audit import record
from tasks_app.models import (
    TASK_EVENT_TYPES,
    Action,
    Delivery,
    DeliveryState,
    EventType,
    Medium,
    Project,
    Target,
    User,
)
from tasks_app.notifications import chat
from tasks_app.notifications.message import NotSent, one_line
from tasks_app.permissions import Principal, require_maintainer, require_target_owner

#: Completes “Its maintainers …”.
MANAGE_NOTIFICATIONS = "manage notifications"
_MAX_URL_LENGTH = 1000
MAX_TARGETS = 20


@dataclass(frozen=True)
class NewTarget:
    """Input for a new target; `url` is where messages go."""

    medium: str
    name: str
    url: str
    event_types: Sequence[str]


def add_target(project: Project, new: NewTarget, *, by: Principal) -> tuple[Target, str]:
    """Create a target; return it and, for a webhook, its secret, which is shown only once.

    Raises NotAllowed for all but maintainers, and BadInput for an invalid URL.
    """
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    url = validate_url(new.medium, new.url)
    secret = ""
    if new.medium == Medium.WEBHOOK:
        secret = _new_secret()
    with transaction.atomic():
        if Target.objects.filter(project=project).count() >= MAX_TARGETS:
            raise BadInput(f"A project can have at most {MAX_TARGETS} webhooks and chats.", where="url")
        target = Target.objects.create(
            project=project,
            medium=new.medium,
            name=new.name,
            event_types=_valid_event_types(new.event_types),
            encrypted_url=encrypt(url),
            encrypted_secret=secret and encrypt(secret),
            shown=masked_url(new.medium, url),
        )
        _record_change(project, by.user, added=_audit_details(target))
    return target, secret


def change_target(
    target: Target, *, name: str, event_types: Sequence[str], active: bool, by: Principal
) -> None:
    """Change a target. Raises NotAllowed for all but maintainers."""
    project = _project_of(target)
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    before = _audit_details(target)
    target.name, target.event_types, target.active = name, _valid_event_types(event_types), active
    with transaction.atomic():
        target.save(update_fields=["name", "event_types", "active"])
        _record_change(project, by.user, before=before, after=_audit_details(target))


def renew_secret(target: Target, *, by: Principal) -> str:
    """Replace the secret of a webhook and return it; it is shown only once.

    Raises NotAllowed for all but maintainers, and BadInput for a chat.
    """
    project = _project_of(target)
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    if target.medium != Medium.WEBHOOK:
        raise BadInput("Only webhooks have a secret.")
    secret = _new_secret()
    target.encrypted_secret = encrypt(secret)
    with transaction.atomic():
        target.save(update_fields=["encrypted_secret"])
        _record_change(project, by.user, new_secret=_audit_details(target))
    return secret


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def remove_target(target: Target, *, by: Principal) -> None:
    """Remove a target with its delivery log. Raises NotAllowed for all but maintainers."""
    project = _project_of(target)
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    with transaction.atomic():
        _record_change(project, by.user, removed=_audit_details(target))
        target.delete()


def try_target(target: Target, *, by: Principal) -> Delivery:
    """Send a test. Raises NotAllowed, or BadInput if the target is inactive."""
    require_target_owner(by, target)
    if not target.active:
        raise BadInput("It is switched off. Switch it on first.")
    return Delivery.objects.create(
        event_type=EventType.TEST, medium=target.medium, target=target, due_at=timezone.now()
    )


def send_again(delivery: Delivery, *, by: Principal) -> None:
    """Send a waiting or failed delivery now. Raises NotAllowed, or BadInput if it was sent."""
    assert delivery.target  # noqa: S101 (only these have a page)
    require_maintainer(by, _project_of(delivery.target), MANAGE_NOTIFICATIONS)
    again = Delivery.objects.filter(pk=delivery.pk, state__in=[DeliveryState.WAITING, DeliveryState.FAILED])
    free = {"state": DeliveryState.WAITING, "attempts": 0, "due_at": timezone.now()}
    if not again.update(**free, token=None, taken_until=None):
        raise BadInput("It was already sent, or must no longer be sent.")


def set_personal_chat(user: User, url: str) -> None:
    """Store a chat URL that `validate_url` returned. The caller makes the audit entry."""
    values = {
        "medium": Medium.CHAT,
        "name": "own chat",
        "encrypted_url": encrypt(url),
        "shown": masked_url(Medium.CHAT, url),
        "active": True,
    }
    Target.objects.update_or_create(user=user, defaults=values)


def validate_url(medium: str, url: str) -> str:
    """Return the stripped URL. Raises BadInput. Takes too long for a transaction, as it runs apprise."""
    url = url.strip()
    if len(url) > _MAX_URL_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise BadInput("Enter the URL in ASCII characters, without spaces.", where="url")
    if medium == Medium.WEBHOOK:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise BadInput("must be an https:// or http:// URL.", where="url")
        if parts.username or parts.password:
            raise BadInput("must not contain a user or password. Requests are signed instead.", where="url")
        return parts._replace(fragment="").geturl()
    if medium != Medium.CHAT:
        raise BadInput("choose webhook or chat.", where="medium")
    try:
        chat.check(url)
    except NotSent as error:
        raise BadInput(str(error), where="url") from None
    return url


def masked_url(medium: str, url: str) -> str:
    if medium == Medium.CHAT:
        return chat.masked_url(url)
    parts = urlsplit(url)
    path = parts.path
    if len(path) > 4:
        path = f"/…{path[-3:]}"
    if parts.query:
        path += "?…"
    return one_line(f"{parts.scheme}://{parts.netloc}{path}", 200)


def _project_of(target: Target) -> Project:
    assert target.project  # noqa: S101 (personal chats are changed in the preferences)
    return target.project


def _valid_event_types(event_types: Sequence[str]) -> list[str]:
    return [event_type.value for event_type in TASK_EVENT_TYPES if event_type in event_types]


def _audit_details(target: Target) -> dict[str, object]:
    """Return the details of a target for the audit log, without URL and secret."""
    return {
        "name": target.name,
        "medium": target.medium,
        "shown": target.shown,
        "event_types": list(target.event_types),
        "active": target.active,
    }


def _record_change(project: Project, by: User, **detail: dict[str, object]) -> None:
    record(Action.NOTIFICATIONS_CHANGED, by=by, project=project, **cast(Any, detail))

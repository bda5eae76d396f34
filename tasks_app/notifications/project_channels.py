"""Places outside to which messages go: added, changed, tried out and removed by those who may."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import (
    OCCASIONS,
    Action,
    Delivery,
    DeliveryState,
    Medium,
    Occasion,
    Project,
    Target,
    User,
)
from tasks_app.notifications import chat
from tasks_app.notifications.encryption import seal
from tasks_app.notifications.errors import NotSent
from tasks_app.notifications.plain_text import one_line
from tasks_app.permissions import Principal, require_maintainer, require_target_owner

#: Completes “Its maintainers …”.
MANAGE_NOTIFICATIONS = "manage notifications"
_LONGEST_ADDRESS = 1000
MOST_TARGETS = 20


@dataclass(frozen=True)
class NewTarget:
    """What somebody typed for a place that is to be added."""

    medium: str
    name: str
    address: str
    occasions: Sequence[str]


def add_target(project: Project, new: NewTarget, *, by: Principal) -> tuple[Target, str]:
    """The target and, for a webhook, its secret, which is shown this once.

    Raises NotAllowed for all but maintainers, BadInput for an address that cannot be used.
    """
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    address = checked_address(new.medium, new.address)
    secret = _new_secret() if new.medium == Medium.WEBHOOK else ""
    with transaction.atomic():
        if Target.objects.filter(project=project).count() >= MOST_TARGETS:
            raise BadInput(f"A project can have at most {MOST_TARGETS} webhooks and chats.", where="address")
        target = Target.objects.create(
            project=project,
            medium=new.medium,
            name=new.name,
            occasions=_known(new.occasions),
            sealed_address=seal(address),
            sealed_secret=seal(secret) if secret else "",
            shown=shown(new.medium, address),
        )
        _record(project, by.user, added=_facts(target))
    return target, secret


def change_target(
    target: Target, *, name: str, occasions: Sequence[str], active: bool, by: Principal
) -> None:
    """Raises NotAllowed for all but maintainers."""
    project = _project(target)
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    before = _facts(target)
    target.name, target.occasions, target.active = name, _known(occasions), active
    with transaction.atomic():
        target.save(update_fields=["name", "occasions", "active"])
        _record(project, by.user, before=before, after=_facts(target))


def renew_secret(target: Target, *, by: Principal) -> str:
    """The new secret of a webhook, shown this once; posts are signed with it from now on.

    Raises NotAllowed for all but maintainers, BadInput for a chat.
    """
    project = _project(target)
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    if target.medium != Medium.WEBHOOK:
        raise BadInput("Only webhooks have a secret.")
    secret = _new_secret()
    target.sealed_secret = seal(secret)
    with transaction.atomic():
        target.save(update_fields=["sealed_secret"])
        _record(project, by.user, new_secret=_facts(target))
    return secret


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def remove_target(target: Target, *, by: Principal) -> None:
    """With its delivery log. Raises NotAllowed for all but maintainers."""
    project = _project(target)
    require_maintainer(by, project, MANAGE_NOTIFICATIONS)
    with transaction.atomic():
        _record(project, by.user, removed=_facts(target))
        target.delete()


def try_target(target: Target, *, by: Principal) -> Delivery:
    """Have the worker send a test. Raises NotAllowed for whom the target is none of their business."""
    require_target_owner(by, target)
    if not target.active:
        raise BadInput("It is switched off. Switch it on first.")
    return Delivery.objects.create(
        occasion=Occasion.TEST, medium=target.medium, target=target, due_at=timezone.now()
    )


def send_again(delivery: Delivery, *, by: Principal) -> None:
    """Send now what waits or was given up. Raises NotAllowed, or BadInput for what was sent."""
    assert delivery.target  # noqa: S101 (only these have a page)
    require_maintainer(by, _project(delivery.target), MANAGE_NOTIFICATIONS)
    again = Delivery.objects.filter(pk=delivery.pk, state__in=[DeliveryState.WAITING, DeliveryState.FAILED])
    free = {"state": DeliveryState.WAITING, "attempts": 0, "due_at": timezone.now()}
    if not again.update(**free, token=None, taken_until=None):
        raise BadInput("It was already sent, or must no longer be sent.")


def set_own_chat(user: User, address: str) -> None:
    """The address was checked: that takes too long for a transaction. The caller records it."""
    facts = {
        "medium": Medium.CHAT,
        "name": "own chat",
        "sealed_address": seal(address),
        "shown": shown(Medium.CHAT, address),
        "active": True,
    }
    Target.objects.update_or_create(user=user, defaults=facts)


def checked_address(medium: str, address: str) -> str:
    """The address without blanks around it. Raises BadInput that says what is wrong with it."""
    address = address.strip()
    if (
        len(address) > _LONGEST_ADDRESS
        or not address.isascii()
        or not address.isprintable()
        or " " in address
    ):
        raise BadInput("Enter the URL in ASCII characters, without spaces.", where="address")
    if medium == Medium.WEBHOOK:
        return _checked_web_address(address)
    try:
        chat.check(address)
    except NotSent as error:
        raise BadInput(str(error), where="address") from None
    return address


def _checked_web_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadInput("must be an https:// or http:// URL.", where="address")
    if parts.username or parts.password:
        raise BadInput("must not contain a user or password. Requests are signed instead.", where="address")
    return parts._replace(fragment="").geturl()


def shown(medium: str, address: str) -> str:
    if medium == Medium.CHAT:
        return chat.shown(address)
    parts = urlsplit(address)
    path = parts.path if len(parts.path) <= 4 else f"/…{parts.path[-3:]}"
    return one_line(f"{parts.scheme}://{parts.netloc}{path}{'?…' if parts.query else ''}", 200)


def _project(target: Target) -> Project:
    assert target.project  # noqa: S101 (one's own chat is changed with one's preferences)
    return target.project


def _known(occasions: Sequence[str]) -> list[str]:
    return [occasion.value for occasion in OCCASIONS if occasion in occasions]


def _facts(target: Target) -> dict[str, object]:
    """What the audit may hold of a target: no address, no secret."""
    return {
        "name": target.name,
        "medium": target.medium,
        "shown": target.shown,
        "occasions": list(target.occasions),
        "active": target.active,
    }


def _record(project: Project, by: User, **detail: dict[str, object]) -> None:
    record(Action.NOTIFICATIONS_CHANGED, by=by, project=project, **cast(Any, detail))

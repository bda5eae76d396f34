"""What one person does about being told: preferences, the own chat, and reading notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import time
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.history.audit import record
from tasks_app.models import Action, Medium, Notice, Preferences, Project, Target
from tasks_app.notifications.project_channels import checked_address, set_own_chat
from tasks_app.permissions import Principal, notices_visible_to, require_unrestricted


@dataclass(frozen=True)
class Choice:
    """Everything that one can choose. `chat` is a new address, `forget_chat` takes the present one away."""

    wishes: Mapping[str, Mapping[str, str]]
    reach: str
    projects: Iterable[Project]
    time_zone: str
    quiet_from: time | None
    quiet_until: time | None
    digest: str
    digest_at: time | None
    chat: str = ""
    forget_chat: bool = False


def choose(principal: Principal, choice: Choice) -> None:
    """Store what somebody wants to be told.

    Raises BadInput for a chat address that cannot be used, or NotAllowed for a token that is restricted to
    some projects, because the choice concerns all.
    """
    require_unrestricted(principal, "change what you are told, which concerns all projects")
    user = principal.user
    address = checked_address(Medium.CHAT, choice.chat) if choice.chat else ""
    facts: dict[str, Any] = {
        "wishes": {occasion: dict(media) for occasion, media in choice.wishes.items()},
        "reach": choice.reach,
        "time_zone": choice.time_zone,
        "quiet_from": choice.quiet_from,
        "quiet_until": choice.quiet_until,
        "digest": choice.digest,
        "digest_at": choice.digest_at,
    }
    with transaction.atomic():
        if address:
            set_own_chat(user, address)
        elif choice.forget_chat:
            Target.objects.filter(user=user).delete()
        preferences, _ = Preferences.objects.update_or_create(user=user, defaults=facts)
        preferences.projects.set(choice.projects)
        chat = "new" if address else "removed" if choice.forget_chat else "as before"
        record(Action.NOTIFICATIONS_CHANGED, by=user, subject=user.shown_name, chat=chat, **_told(facts))


def _told(facts: dict[str, Any]) -> dict[str, Any]:
    """The same as JSON can hold it."""
    return {name: str(value) if isinstance(value, time) else value for name, value in facts.items()}


def mark_read(principal: Principal, notice_id: int | None = None) -> int:
    """One notice, or all that the person sees; how many were unread. Others' notices are left alone."""
    unread = notices_visible_to(principal).filter(read_at=None)
    if notice_id is not None:
        unread = unread.filter(pk=notice_id)
    # The rows are found through their projects, which an UPDATE cannot look at.
    return Notice.objects.filter(pk__in=unread.values("pk")).update(read_at=timezone.now())

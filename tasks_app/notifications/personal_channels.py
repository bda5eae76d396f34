"""Actions of users on their own notifications: preferences, personal chat, reading notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import time
from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Medium, Notice, Preferences, Project, Target
from tasks_app.notifications.project_channels import set_personal_chat, validate_url
from tasks_app.permissions import Principal, notices_visible_to, require_unrestricted


@dataclass(frozen=True)
class PreferencesChange:
    """New preferences. `chat` is the URL of a new chat, `forget_chat` removes the current one."""

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


def save_preferences(principal: Principal, choice: PreferencesChange) -> None:
    """Store the preferences of a user.

    Raises BadInput for an invalid chat URL, and NotAllowed for a token that is restricted to some projects,
    because preferences concern all.
    """
    require_unrestricted(principal, "change notification settings, which concern all projects")
    user = principal.user
    url = validate_url(Medium.CHAT, choice.chat) if choice.chat else ""
    values: dict[str, Any] = {
        "wishes": {occasion: dict(media) for occasion, media in choice.wishes.items()},
        "reach": choice.reach,
        "time_zone": choice.time_zone,
        "quiet_from": choice.quiet_from,
        "quiet_until": choice.quiet_until,
        "digest": choice.digest,
        "digest_at": choice.digest_at,
    }
    with transaction.atomic():
        if url:
            set_personal_chat(user, url)
        elif choice.forget_chat:
            Target.objects.filter(user=user).delete()
        preferences, _ = Preferences.objects.update_or_create(user=user, defaults=values)
        preferences.projects.set(choice.projects)
        chat = "new" if url else "removed" if choice.forget_chat else "as before"
        recorded = {name: str(value) if isinstance(value, time) else value for name, value in values.items()}
        record(Action.NOTIFICATIONS_CHANGED, by=user, subject=user.shown_name, chat=chat, **recorded)


def mark_read(principal: Principal, notice_id: int | None = None) -> int:
    """Mark one or all of the user's own notices as read; return how many were unread."""
    unread = notices_visible_to(principal).filter(read_at=None)
    if notice_id is not None:
        unread = unread.filter(pk=notice_id)
    # An UPDATE cannot join the projects, so the ids are selected first.
    return Notice.objects.filter(pk__in=unread.values("pk")).update(read_at=timezone.now())

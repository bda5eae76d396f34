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
from tasks_app.models import TASK_EVENT_TYPES, Action, Digest, Medium, Notice, Preferences, Project, Target
from tasks_app.notifications.recipients import preferences_of
from tasks_app.notifications.targets import set_personal_chat, validate_url
from tasks_app.notifications.timing import time_zone_names
from tasks_app.permissions import (
    Principal,
    notices_visible_to,
    projects_visible_to,
    require_unrestricted,
)
from tasks_app.services.accounts import change_time_zone

#: Media for personal notifications; webhooks belong to projects.
MEDIA = (Medium.PAGE, Medium.EMAIL, Medium.CHAT)


@dataclass(frozen=True)
class NotificationSettings:
    """A user's complete notification settings. `chat` is a new URL, `forget_chat` removes the present one."""

    subscriptions: Mapping[str, Mapping[str, str]]
    project_selection: str
    projects: Iterable[Project]
    time_zone: str
    quiet_from: time | None
    quiet_until: time | None
    digest: str
    digest_at: time | None
    chat: str = ""
    forget_chat: bool = False


def notification_settings_of(principal: Principal) -> NotificationSettings:
    """Return the user's settings. A project that the user no longer sees sends nothing, so it is left out."""
    preferences = preferences_of(principal.user)
    visible = projects_visible_to(principal)
    chosen = preferences.projects.filter(pk__in=visible.values("pk")) if preferences.pk else visible.none()
    return NotificationSettings(
        subscriptions={
            one: {medium: preferences.selected_tasks(one, medium) for medium in MEDIA}
            for one in TASK_EVENT_TYPES
        },
        project_selection=preferences.project_selection,
        projects=list(chosen),
        time_zone=preferences.time_zone,
        quiet_from=preferences.quiet_from,
        quiet_until=preferences.quiet_until,
        digest=preferences.digest,
        digest_at=preferences.digest_at,
    )


def save_preferences(principal: Principal, choice: NotificationSettings) -> None:
    """Store a user's notification settings.

    Raises BadInput that names the field in `where`, or NotAllowed for a token that is restricted to some
    projects, because the choice concerns all.
    """
    require_unrestricted(principal, "change what you are told, which concerns all projects")
    _check_input(choice)
    user = principal.user
    url = validate_url(Medium.CHAT, choice.chat) if choice.chat else ""
    values: dict[str, Any] = {
        "subscriptions": {event_type: dict(media) for event_type, media in choice.subscriptions.items()},
        "project_selection": choice.project_selection,
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
        change_time_zone(user, "" if choice.time_zone == "UTC" else choice.time_zone)
        preferences, _ = Preferences.objects.update_or_create(user=user, defaults=values)
        preferences.projects.set(choice.projects)
        chat = "new" if url else "removed" if choice.forget_chat else "as before"
        record(
            Action.NOTIFICATIONS_CHANGED,
            by=user,
            subject=user.shown_name,
            chat=chat,
            time_zone=choice.time_zone,
            **_as_json_values(values),
        )


def _check_input(choice: NotificationSettings) -> None:
    if (choice.quiet_from is None) != (choice.quiet_until is None):
        raise BadInput("Enter both a beginning and an end, or neither.", where="quiet_until")
    if choice.digest == Digest.DAILY and choice.digest_at is None:
        raise BadInput("Enter a time.", where="digest_at")
    if choice.time_zone not in time_zone_names():
        raise BadInput(f"There is no time zone “{choice.time_zone}”.", where="time_zone")


def _as_json_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with times as text, for JSON."""
    return {name: str(value) if isinstance(value, time) else value for name, value in values.items()}


def mark_read(principal: Principal, notice_id: int | None = None) -> int:
    """Mark one or all of the user's own notices as read; return how many were unread."""
    unread = notices_visible_to(principal).filter(read_at=None)
    if notice_id is not None:
        unread = unread.filter(pk=notice_id)
    # An UPDATE cannot join the projects, so the ids are selected first.
    return Notice.objects.filter(pk__in=unread.values("pk")).update(read_at=timezone.now())

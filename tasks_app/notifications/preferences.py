"""Recipients of notifications, their preferences, and the times of deliveries."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.core.time_zones import time_zone, time_zone_names
from tasks_app.history.audit import record
from tasks_app.models import (
    ACTING_ROLES,
    TASK_EVENT_TYPES,
    Action,
    AskedBy,
    Digest,
    Medium,
    Membership,
    Notice,
    Preferences,
    Project,
    ProjectSelection,
    Question,
    Role,
    Target,
    Task,
    TaskSelection,
    User,
)
from tasks_app.notifications.targets import set_personal_chat, validate_url
from tasks_app.permissions import (
    Principal,
    notices_visible_to,
    projects_visible_to,
    require_unrestricted,
    users_who_see,
)
from tasks_app.services.accounts import change_time_zone
from tasks_app.services.working_hours import WITH_SCHEDULE


@dataclass(frozen=True)
class Recipient:
    """A user who sees the project. `role` is None for site admins without one."""

    user: User
    preferences: Preferences
    role: str | None
    chose_project: bool
    is_concerned: bool = False
    is_asked_with_all: bool = False

    def wants(self, event_type: str, medium: Medium) -> bool:
        """Return whether to tell them. `is_concerned`: it is theirs; see `recipients_of`.

        A question that is asked of nobody by name (`is_asked_with_all`) is mailed to its creator only.
        """
        mine = self.is_concerned or (self.is_asked_with_all and medium != Medium.EMAIL)
        if not self._includes_project(mine):
            return False
        selected_tasks = self.preferences.selected_tasks(event_type, medium)
        return selected_tasks == TaskSelection.ALL or (selected_tasks == TaskSelection.MINE and mine)

    def _includes_project(self, mine: bool) -> bool:
        # Viewers are not notified of other users' tasks unless they choose so.
        if self.preferences.pk is None and self.role == Role.VIEWER:
            return mine
        if self.preferences.project_selection == ProjectSelection.CHOSEN:
            return self.chose_project
        return self.preferences.project_selection == ProjectSelection.ALL or mine or self.role is not None


def preferences_of(user: User) -> Preferences:
    """Return the user's preferences, or the defaults as an unsaved row."""
    try:
        return user.preferences
    except Preferences.DoesNotExist:
        return Preferences(user=user)


def recipients_of(
    task: Task,
    *,
    except_user: int | None,
    concerns: int | None = None,
    questions: Sequence[Question] | None = None,
) -> list[Recipient]:
    """Return all users who see the task's project, except the one who caused the event.

    It is theirs if they created the task, watch it, reviewed it or wrote in its threads, and of the user with
    the id `concerns`. If `questions` are announced, it is theirs of whom one is asked, and of who watches the
    task; without a name it is asked of all members who may answer, and of the creator.
    """
    role = Membership.objects.filter(user=OuterRef("pk"), project=task.project_id).values("role")
    others = users_who_see(task.project_id).exclude(pk=except_user or 0)
    users = others.annotate(project_role=Subquery(role))
    choices = Preferences.projects.through.objects.filter(project=task.project_id)
    chosen_by = set(choices.values_list("preferences__user", flat=True))
    mine, roles = {concerns, task.created_by_id}, frozenset[Role]()
    if questions is None:
        wrote = task.threads.sent().values_list("comments__author", flat=True)
        mine |= {*task.reviews.sent().values_list("author", flat=True), *wrote}
    else:
        rows = [question.asked_now for question in questions]
        named = all(any(one.asked_by != AskedBy.OPINION for one in asked) for asked in rows)
        mine = {concerns, *(one.user_id for asked in rows for one in asked)}
        if not named:
            mine.add(task.created_by_id)
            roles = ACTING_ROLES
    mine |= set(task.watchers.values_list("pk", flat=True))
    return [
        Recipient(
            user,
            preferences_of(user),
            user.project_role,
            user.pk in chosen_by,
            is_concerned=user.pk in mine,
            is_asked_with_all=user.project_role in roles,
        )
        for user in users.select_related("preferences", "chat_target", *WITH_SCHEDULE).order_by("pk")
    ]


# Actions of users on their own notifications: preferences, personal chat, reading notices.


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
    chosen: list[Project] = []
    if preferences.pk:
        chosen = list(preferences.projects.filter(pk__in=visible.values("pk")))
    return NotificationSettings(
        subscriptions={
            one: {medium: preferences.selected_tasks(one, medium) for medium in MEDIA}
            for one in TASK_EVENT_TYPES
        },
        project_selection=preferences.project_selection,
        projects=chosen,
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
    url = choice.chat and validate_url(Medium.CHAT, choice.chat)
    values: dict[str, Any] = {
        "subscriptions": {event_type: dict(media) for event_type, media in choice.subscriptions.items()},
        "project_selection": choice.project_selection,
        "quiet_from": choice.quiet_from,
        "quiet_until": choice.quiet_until,
        "digest": choice.digest,
        "digest_at": choice.digest_at,
    }
    with transaction.atomic():
        chat = "as before"
        if url:
            chat = "new"
            set_personal_chat(user, url)
        elif choice.forget_chat:
            chat = "removed"
            Target.objects.filter(user=user).delete()
        zone = choice.time_zone
        if zone == "UTC":
            zone = ""
        change_time_zone(user, zone)
        preferences, _ = Preferences.objects.update_or_create(user=user, defaults=values)
        preferences.projects.set(choice.projects)
        stored: dict[str, Any] = {
            name: str(value) if isinstance(value, time) else value for name, value in values.items()
        }
        record(
            Action.NOTIFICATIONS_CHANGED,
            by=user,
            subject=user.shown_name,
            chat=chat,
            time_zone=choice.time_zone,
            **stored,
        )


def _check_input(choice: NotificationSettings) -> None:
    if (choice.quiet_from is None) != (choice.quiet_until is None):
        raise BadInput("Enter both a beginning and an end, or neither.", where="quiet_until")
    if choice.digest == Digest.DAILY and choice.digest_at is None:
        raise BadInput("Enter a time.", where="digest_at")
    if choice.time_zone not in time_zone_names():
        raise BadInput(f"There is no time zone “{choice.time_zone}”.", where="time_zone")


def mark_read(principal: Principal, notice_id: int | None = None) -> int:
    """Mark one or all of the user's own notices as read; return how many were unread."""
    unread = notices_visible_to(principal).filter(read_at=None)
    if notice_id is not None:
        unread = unread.filter(pk=notice_id)
    # An UPDATE cannot join the projects, so the ids are selected first.
    return Notice.objects.filter(pk__in=unread.values("pk")).update(read_at=timezone.now())


# Times of deliveries: quiet hours and digests in the user's time zone, and retries.


#: A delivery fails after this many attempts, about eleven hours after the first.
MAX_ATTEMPTS = 8
_FIRST_DELAY = timedelta(seconds=20)
_MAX_DELAY = timedelta(hours=6)


def when_due(now: datetime, preferences: Preferences, *, digest: bool) -> datetime:
    """Return when a notification of now is sent; `digest`: whether the medium has digests."""
    due, here = now, time_zone(preferences.time_zone)
    if digest and preferences.digest == Digest.HOURLY:  # local time: some zones are half an hour off
        due = now.replace(second=0, microsecond=0) + timedelta(minutes=60 - now.astimezone(here).minute)
    elif digest and preferences.digest == Digest.DAILY:
        due = _next_local_time(now, preferences.digest_at or time(9), here)
    return after_quiet_hours(due, preferences)


def after_quiet_hours(moment: datetime, preferences: Preferences) -> datetime:
    """Return the time itself, or the end of the quiet hours that it is in."""
    begin, end = preferences.quiet_from, preferences.quiet_until
    if begin is None or end is None or begin == end:
        return moment
    here = time_zone(preferences.time_zone)
    clock = moment.astimezone(here).time()
    is_quiet = begin <= clock < end
    if begin > end:  # over midnight
        is_quiet = clock >= begin or clock < end
    if is_quiet:
        return _next_local_time(moment, end, here)
    return moment


def _next_local_time(moment: datetime, clock: time, here: ZoneInfo) -> datetime:
    """Return the next time after `moment` at which local clocks show `clock`."""
    today = moment.astimezone(here).date()
    return min(at for at in _occurrences(today, clock, here) if at > moment)


def _occurrences(today: date, clock: time, here: ZoneInfo) -> Iterator[datetime]:
    """Yield the times at which local clocks show `clock`, today and tomorrow.

    When clocks go back, an hour occurs twice. When they go forward, a skipped time counts as the time after
    the gap, so only fold 0 is used.
    """
    for days in (0, 1):
        for fold in (0, 1):
            local = datetime.combine(today + timedelta(days=days), clock.replace(fold=fold), tzinfo=here)
            at = local.astimezone(UTC)
            if fold == 0 or at.astimezone(here).time() == clock:
                yield at


def retry_delay(attempt: int) -> timedelta:
    """Return the delay after this many failed attempts: four times longer each, with jitter of a quarter."""
    delay = min(_FIRST_DELAY * int(4 ** (attempt - 1)), _MAX_DELAY)
    return delay * random.uniform(0.75, 1.25)  # noqa: S311 (spreads load, guards nothing)

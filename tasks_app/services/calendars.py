"""Who is on call in a project, and when a user is away: calendars that the worker reads from time to time."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from tasks_app.config.fields import calendar_url
from tasks_app.config.project_settings import effective
from tasks_app.config.routing import Directory, OnCall
from tasks_app.core.allowed_networks import IpAddressRefused
from tasks_app.core.calendars import MOST_BYTES, CalendarContent, Shift, read_calendar, shifts_at, shifts_from
from tasks_app.core.errors import BadInput, CatHerderError
from tasks_app.core.text import storable_text
from tasks_app.core.time_zones import time_zone
from tasks_app.encryption import Purpose, decrypt, encrypt
from tasks_app.forges.http import session, unreachable
from tasks_app.git.files import committed_bytes
from tasks_app.history.audit import record
from tasks_app.models import Action, Calendar, Project, User, paths
from tasks_app.permissions import Principal, require_actor, require_unrestricted
from tasks_app.services.projects.settings import overrides_of, repository_settings

#: How far shifts and absences are read ahead: as long they hold if the calendar cannot be read any more.
SHIFTS_AHEAD = timedelta(days=35)
ABSENCES_AHEAD = timedelta(days=400)
#: Absences that have begun are of use.
_ABSENCES_BACK = timedelta(days=7)
#: Seconds for the host of a calendar while a person waits for the page.
READ_NOW_SECONDS = 8.0


def due_calendars(now: datetime) -> list[Calendar]:
    """Return the calendars that are to be read. Each project has a row, also if it names no calendar."""
    missing = Project.objects.filter(on_call_calendar=None)
    Calendar.objects.bulk_create([Calendar(project=one) for one in missing], ignore_conflicts=True)
    related = Calendar.objects.due(now).select_related("project", "user")
    return list(related.order_by(F("checked_at").asc(nulls_first=True), "pk"))


def read_due_calendar(calendar: Calendar, now: datetime, *, seconds: float | None = None) -> bool:
    """Read a calendar and store its events; return False if another process does. Fetches URLs, runs git.

    If that fails, the events stay, and the row says why and since when. `seconds` bounds the fetch.
    """
    if not Calendar.objects.claim(calendar, now):
        return False
    if calendar.project:
        # If the settings cannot be read, of which the project's page says more, the former calendar holds.
        source = calendar.source
        with suppress(CatHerderError):
            source = on_call_source(calendar.project)
        if source != calendar.source:
            _forget(calendar, source)
    if calendar.source:
        try:
            content = _content_of(calendar, seconds)
            store_content(calendar, _events_of(calendar, content, now), now)
        except BadInput as error:
            calendar.fault, calendar.fault_since = error.message[:500], calendar.fault_since or now
        except CatHerderError as error:
            calendar.fault, calendar.fault_since = str(error)[:500], calendar.fault_since or now
    # Not if its source was changed meanwhile: then it is due anew.
    held = Calendar.objects.filter(pk=calendar.pk, checked_at=now)
    names = ("source", "events", "zone", "notes", "read_at", "fault", "fault_since")
    held.update(**{name: getattr(calendar, name) for name in names})
    return True


def _read_now(calendar: Calendar) -> Calendar:
    """Read a calendar while a person waits, and return its row. It says what was read, or why not."""
    read_due_calendar(calendar, timezone.now(), seconds=READ_NOW_SECONDS)
    calendar.refresh_from_db()
    return calendar


def read_on_call_calendar(project: Project, *, by: Principal) -> Calendar:
    """Read the project's on-call calendar now. Its source is empty if there is none.

    Raises NotAllowed for viewers.
    """
    require_actor(by, project)
    calendar, _ = Calendar.objects.get_or_create(project=project)
    return _read_now(calendar)


def on_call_source(project: Project) -> str:
    """Return the URL or path of the project's on-call calendar, as its newest commit or people say; or "".

    Raises WorkspaceError or BadInput. Runs git.
    """
    commit = paths.repository(project).head(project.branch)
    config = effective(repository_settings(project, commit=commit), overrides_of(project))
    return config.on_call or ""


def _forget(calendar: Calendar, source: str) -> None:
    calendar.source, calendar.events, calendar.notes, calendar.read_at = source, [], [], None
    calendar.fault, calendar.fault_since = "", None


def store_content(calendar: Calendar, content: CalendarContent, now: datetime) -> None:
    """Let the row, which is not saved, have what was read."""
    calendar.events, calendar.zone, calendar.notes = content.events, content.zone[:64], list(content.notes)
    calendar.read_at, calendar.fault, calendar.fault_since = now, "", None


def _events_of(calendar: Calendar, content: bytes, now: datetime) -> CalendarContent:
    if calendar.project:
        return read_calendar(content, begin=now, end=now + SHIFTS_AHEAD)
    assert calendar.user  # noqa: S101 (a constraint of the table)
    return _absences_of(calendar.user, content, now)


def _absences_of(user: User, content: bytes, now: datetime) -> CalendarContent:
    return read_calendar(
        content,
        begin=now - _ABSENCES_BACK,
        end=now + ABSENCES_AHEAD,
        zone=user.time_zone or "UTC",
        absences=True,
    )


def _content_of(calendar: Calendar, seconds: float | None) -> bytes:
    if calendar.user:
        return fetched(decrypt(calendar.encrypted_url, Purpose.CALENDARS), seconds=seconds)
    if "://" in calendar.source:
        return fetched(calendar.source, seconds=seconds)
    assert calendar.project  # noqa: S101 (a constraint of the table)
    repository = paths.repository(calendar.project)
    commit = repository.head(calendar.project.branch)
    content = committed_bytes(repository, commit=commit, path=calendar.source, limit=MOST_BYTES)
    if content is None:
        raise BadInput("The repository has no such file.", where=calendar.source)
    return content


def fetched(url: str, *, seconds: float | None = None) -> bytes:
    """Return what a URL answers; only from the internet and listed networks. Raises CatHerderError."""
    with session(settings.ENVIRONMENT.webhook_allow, seconds=seconds) as connection:
        try:
            answer = connection.get(url, headers={"User-Agent": "Cat-Herder"})
        except requests.TooManyRedirects:
            raise BadInput("It redirects to another address. Enter that one instead.") from None
        except (OSError, IpAddressRefused) as error:
            raise unreachable("The calendar", error) from None
    if not answer.ok:
        raise BadInput(f"Its host answered {answer.status_code}.")
    return answer.content


def on_call_now(project: Project, moment: datetime) -> list[OnCall]:
    """Return the shifts of the project's calendar that cover the moment, as it was last read."""
    calendar = Calendar.objects.filter(project=project).first()
    if calendar is None:
        return []
    zone = time_zone(calendar.zone)
    shifts = shifts_at(moment, shifts_from(calendar.events))
    return [OnCall(shift, shift.why(moment, zone)) for shift in shifts]


def shifts_of_nobody(calendar: Calendar, directory: Directory, moment: datetime) -> list[Shift]:
    """Return the coming shifts that mean nobody who may answer, one for each title."""
    shifts = [one for one in shifts_from(calendar.events) if one.end > moment]
    return list({one.label: one for one in reversed(shifts) if not directory.on_call(one)}.values())[::-1]


# Actions of users on the calendar of their absences.

_OWN = "change the calendar of your absences, which concerns all projects"


def absence_calendar_of(user: User) -> Calendar | None:
    """Return the calendar of the user's absences, if they gave one."""
    return Calendar.objects.filter(user=user).first()


def use_absence_calendar(principal: Principal, url: str) -> Calendar:
    """Let the worker read the user's absences from an https URL, from now on.

    Raises BadInput, or NotAllowed for a token that is restricted to some projects.
    """
    require_unrestricted(principal, _OWN)
    checked = calendar_url(url)
    host = urlsplit(checked).hostname or ""
    return _replace(principal, host, host, encrypted_url=encrypt(checked, Purpose.CALENDARS))


def read_absence_calendar(principal: Principal, calendar: Calendar) -> Calendar:
    """Read the calendar of the user's absences now. Raises BadInput for a file, or NotAllowed as above."""
    require_unrestricted(principal, _OWN)
    if not calendar.encrypted_url:
        raise BadInput("A file is read once. Upload it again if it has changed.")
    return _read_now(calendar)


def upload_absence_calendar(principal: Principal, name: str, content: bytes) -> Calendar:
    """Take the user's absences from a file, once. Raises BadInput, or NotAllowed as above."""
    require_unrestricted(principal, _OWN)
    now = timezone.now()
    read = Calendar(user=principal.user)
    store_content(read, _absences_of(principal.user, content, now), now)
    source = storable_text(name)[:100] or "a file"
    # The audit log does not name the file: why somebody is away is nobody's business.
    return _replace(
        principal, source, "a file", events=read.events, zone=read.zone, notes=read.notes, read_at=now
    )


def remove_absence_calendar(principal: Principal) -> bool:
    """Forget the calendar and its absences; return False if there is none. Raises NotAllowed as above."""
    require_unrestricted(principal, _OWN)
    with transaction.atomic():
        removed, _ = Calendar.objects.filter(user=principal.user).delete()
        if removed:
            _record(principal, "")
    return bool(removed)


def _replace(principal: Principal, source: str, recorded: str, **values: Any) -> Calendar:
    fresh = Calendar(source=source, **values)
    names = {field.attname for field in Calendar._meta.concrete_fields} - {"id", "project_id", "user_id"}
    with transaction.atomic():
        calendar, _ = Calendar.objects.update_or_create(
            user=principal.user, defaults={name: getattr(fresh, name) for name in names}
        )
        _record(principal, recorded)
    return calendar


def _record(principal: Principal, source: str) -> None:
    record(
        Action.NOTIFICATIONS_CHANGED, by=principal.user, subject=principal.user.shown_name,
        absence_calendar=source,
    )  # fmt: skip

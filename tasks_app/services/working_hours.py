"""Working hours and absences of people: stored as they say them, and the usual week for all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date, time, timedelta

from django.db import transaction

from tasks_app.core.errors import BadInput
from tasks_app.core.text import storable_text
from tasks_app.core.time_zones import time_zone, time_zone_names
from tasks_app.core.working_hours import USUAL_WEEK, Absence, Hours, Schedule, absences_from
from tasks_app.history.audit import record
from tasks_app.models import Action, Calendar, User, WorkingHours
from tasks_app.permissions import Principal, require_unrestricted
from tasks_app.services.accounts import change_time_zone

#: For `select_related`.
WITH_SCHEDULE = ("working_hours", "absence_calendar")
MOST_ABSENCES = 50
LONGEST_ABSENCE = timedelta(days=366)


def schedule_of(user: User) -> Schedule:
    """Return when the user works: also the absences of their calendar count.

    Reads working hours and calendar unless they were fetched with the user, see `WITH_SCHEDULE`.
    """
    zone = time_zone(user.time_zone or "UTC")
    week: Sequence[Hours | None] = USUAL_WEEK
    absences = entered_absences(user)
    with suppress(WorkingHours.DoesNotExist):
        week = _week(user.working_hours.week)
    with suppress(Calendar.DoesNotExist):
        absences += absences_from(user.absence_calendar.events, zone, week)
    return Schedule(zone, week, absences)


def entered_absences(user: User) -> list[Absence]:
    """Return the days off that the user entered by hand."""
    try:
        return _absences(user.working_hours.absences)
    except WorkingHours.DoesNotExist:
        return []


def _week(stored: Iterable[object]) -> list[Hours | None]:
    return [
        Hours(time.fromisoformat(str(day["begin"])), time.fromisoformat(str(day["end"])))
        if isinstance(day, dict)
        else None
        for day in stored
    ]


def _absences(stored: Iterable[dict[str, object]] | Sequence[object]) -> list[Absence]:
    return [
        Absence(date.fromisoformat(one["first"]), date.fromisoformat(one["last"]), one["word"])
        for one in stored
        if isinstance(one, dict)
    ]


def save_working_hours(
    principal: Principal, *, week: Sequence[tuple[time, time] | None], absences: Sequence[Absence], zone: str
) -> None:
    """Store the user's own working hours, absences and time zone.

    Raises BadInput that names the field in `where` (`week.0` is Monday), or NotAllowed for a token that is
    restricted to some projects, because the hours concern all.
    """
    require_unrestricted(principal, "change your working hours, which concern all projects")
    if zone not in time_zone_names():
        raise BadInput(f"There is no time zone “{zone}”.", where="time_zone")
    hours = [_checked_hours(number, day) for number, day in enumerate(week)]
    if len(hours) != len(USUAL_WEEK) or not any(hours):
        raise BadInput("Enter the hours of at least one day of the week.", where="week")
    if len(absences) > MOST_ABSENCES:
        raise BadInput(f"Enter at most {MOST_ABSENCES} absences.", where="absences")
    for number, absence in enumerate(absences):
        if not absence.first <= absence.last <= absence.first + LONGEST_ABSENCE:
            message = "An absence ends on its first day or later, after at most a year."
            raise BadInput(message, where=f"absences.{number}")
    stored = {
        "week": [day and {"begin": f"{day.begin:%H:%M}", "end": f"{day.end:%H:%M}"} for day in hours],
        "absences": [
            {"first": str(one.first), "last": str(one.last), "word": storable_text(one.word)[:60]}
            for one in sorted(absences, key=lambda one: one.first)
        ],
    }
    with transaction.atomic():
        change_time_zone(principal.user, "" if zone == "UTC" else zone)
        WorkingHours.objects.update_or_create(user=principal.user, defaults=stored)
        # Not the absences: why somebody is away is nobody's business for the years that entries are kept.
        record(
            Action.NOTIFICATIONS_CHANGED, by=principal.user, subject=principal.user.shown_name,
            working_hours=stored["week"], time_zone=zone,
        )  # fmt: skip


def _checked_hours(number: int, day: tuple[time, time] | None) -> Hours | None:
    try:
        return Hours(*day) if day else None
    except ValueError:
        raise BadInput(
            "Working hours cannot begin and end at the same time.", where=f"week.{number}"
        ) from None

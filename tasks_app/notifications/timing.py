"""When something is sent: quiet hours and digests, in the person's own time zone. Pure functions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tasks_app.models import Digest, Preferences

#: After so many attempts a delivery is given up: about eleven hours after the first.
MOST_ATTEMPTS = 8
_FIRST_WAIT = timedelta(seconds=20)
_LONGEST_WAIT = timedelta(hours=6)


def zone(name: str) -> ZoneInfo:
    """A zone that the system has forgotten since it was chosen counts as UTC."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def zone_names() -> list[str]:
    return sorted(name for name in available_timezones() if "/" in name or name == "UTC")


def when_due(now: datetime, preferences: Preferences, *, digest: bool) -> datetime:
    """When something that happened now is to be sent; `digest`: where the medium collects."""
    due = _collected(now, preferences) if digest else now
    return after_quiet_hours(due, preferences)


def _collected(now: datetime, preferences: Preferences) -> datetime:
    if preferences.digest == Digest.HOURLY:
        return _next_full_hour(now, zone(preferences.time_zone))
    if preferences.digest == Digest.DAILY:
        return _next(now, preferences.digest_at or time(9), zone(preferences.time_zone))
    return now


def _next_full_hour(now: datetime, here: ZoneInfo) -> datetime:
    """As clocks there show it: some zones are half an hour off."""
    return now.replace(second=0, microsecond=0) + timedelta(minutes=60 - now.astimezone(here).minute)


def after_quiet_hours(moment: datetime, preferences: Preferences) -> datetime:
    """The moment itself, or the end of the quiet hours that it is in."""
    begin, end = preferences.quiet_from, preferences.quiet_until
    if begin is None or end is None or begin == end:
        return moment
    here = zone(preferences.time_zone)
    if not _within(moment.astimezone(here).time(), begin, end):
        return moment
    return _next(moment, end, here)


def _within(clock: time, begin: time, end: time) -> bool:
    return begin <= clock < end if begin < end else clock >= begin or clock < end


def _next(moment: datetime, clock: time, here: ZoneInfo) -> datetime:
    """The first time after the moment that clocks there show this."""
    today = moment.astimezone(here).date()
    return min(at for at in _showing(today, clock, here) if at > moment)


def _showing(today: date, clock: time, here: ZoneInfo) -> Iterator[datetime]:
    """In the night when clocks go back an hour comes twice, so both are looked at.

    When they go forward one is left out: what is shown then is the time that clocks would have shown, which
    is after it, and not the other one, which is before.
    """
    for days in (0, 1):
        for fold in (0, 1):
            local = datetime.combine(today + timedelta(days=days), clock.replace(fold=fold), tzinfo=here)
            at = local.astimezone(UTC)
            if fold == 0 or at.astimezone(here).time() == clock:
                yield at


def wait_before(attempt: int) -> timedelta:
    """How long to wait after so many attempts that failed: four times longer each, give or take a quarter."""
    wait = min(_FIRST_WAIT * int(4 ** (attempt - 1)), _LONGEST_WAIT)
    return wait * random.uniform(0.75, 1.25)  # noqa: S311 (spreads load, guards nothing)

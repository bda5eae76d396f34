"""Times of deliveries: quiet hours and digests in the user's time zone, and retries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tasks_app.models import Digest, Preferences

#: A delivery fails after this many attempts, about eleven hours after the first.
MAX_ATTEMPTS = 8
_FIRST_DELAY = timedelta(seconds=20)
_MAX_DELAY = timedelta(hours=6)


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone, or UTC if the system does not know it any more."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


@cache
def time_zone_names() -> tuple[str, ...]:
    """Return the names of all regions' time zones and UTC. Python reads 600 files for them, so once."""
    return tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))


def when_due(now: datetime, preferences: Preferences, *, digest: bool) -> datetime:
    """Return when a notification of now is sent; `digest`: whether the medium has digests."""
    due = _digest_time(now, preferences) if digest else now
    return after_quiet_hours(due, preferences)


def _digest_time(now: datetime, preferences: Preferences) -> datetime:
    if preferences.digest == Digest.HOURLY:
        return _next_full_hour(now, time_zone(preferences.time_zone))
    if preferences.digest == Digest.DAILY:
        return _next_local_time(now, preferences.digest_at or time(9), time_zone(preferences.time_zone))
    return now


def _next_full_hour(now: datetime, here: ZoneInfo) -> datetime:
    """Return the next full hour of local time: some time zones are half an hour off."""
    return now.replace(second=0, microsecond=0) + timedelta(minutes=60 - now.astimezone(here).minute)


def after_quiet_hours(moment: datetime, preferences: Preferences) -> datetime:
    """Return the time itself, or the end of the quiet hours that it is in."""
    begin, end = preferences.quiet_from, preferences.quiet_until
    if begin is None or end is None or begin == end:
        return moment
    here = time_zone(preferences.time_zone)
    clock = moment.astimezone(here).time()
    is_quiet = begin <= clock < end if begin < end else clock >= begin or clock < end
    return _next_local_time(moment, end, here) if is_quiet else moment


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

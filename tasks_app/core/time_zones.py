"""The time zones that people can choose."""

from __future__ import annotations

from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones


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

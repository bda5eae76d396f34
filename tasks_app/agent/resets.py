"""When a refused request may be repeated, according to the headers of the API's response. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

#: Maximum wait for a limit, whatever the response says.
LONGEST = timedelta(days=30)
SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
RESET = re.compile(r"anthropic-ratelimit-.+-reset")


def reset_time(headers: Mapping[str, str], *, now: datetime) -> datetime | None:
    """Return the latest time that a 429 names, from `now` to `LONGEST` later, or None if it names no time.

    That is `retry-after`, or the reset of an allowance of which nothing remains. Values that are no time are
    ignored. `now` is in UTC, and so is the result.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    found = [_parse_retry_after(lower.get("retry-after", ""), now)]
    for name, value in lower.items():
        if RESET.fullmatch(name) and lower.get(name.removesuffix("reset") + "remaining") == "0":
            found.append(_parse_rfc3339(value))
    times = [time for time in found if time is not None]
    return min(max(*times, now), now + LONGEST) if times else None


def _parse_retry_after(value: str, now: datetime) -> datetime | None:
    if SECONDS.fullmatch(value):
        return now + timedelta(seconds=min(float(value), LONGEST.total_seconds()))
    try:
        return _in_utc(parsedate_to_datetime(value))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _parse_rfc3339(value: str) -> datetime | None:
    try:
        return _in_utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)

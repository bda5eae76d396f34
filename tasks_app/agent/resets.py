"""When a refused request may be made again, as the headers of the API's answer say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

#: No limit is waited for longer than this, whatever the answer says.
LONGEST = timedelta(days=30)
SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
RESET = re.compile(r"anthropic-ratelimit-.+-reset")


def reset_time(headers: Mapping[str, str], *, now: datetime) -> datetime | None:
    """The latest time that a 429 names, between `now` and `LONGEST` from then; None if it names none.

    `retry-after` counts, and the reset of every allowance of which nothing remains. What is no time is
    passed over. `now` is in UTC, and so is the result.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    named = list(_named(lower, now))
    return min(max(*named, now), now + LONGEST) if named else None


def _named(headers: Mapping[str, str], now: datetime) -> Iterator[datetime]:
    found = [_retry_after(headers.get("retry-after", ""), now)]
    for name, value in headers.items():
        if RESET.fullmatch(name) and headers.get(name.removesuffix("reset") + "remaining") == "0":
            found.append(_rfc3339(value))
    yield from (time for time in found if time is not None)


def _retry_after(value: str, now: datetime) -> datetime | None:
    if SECONDS.fullmatch(value):
        return now + timedelta(seconds=min(float(value), LONGEST.total_seconds()))
    try:
        return _in_utc(parsedate_to_datetime(value))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _rfc3339(value: str) -> datetime | None:
    try:
        return _in_utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        return None


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)

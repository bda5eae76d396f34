"""Read a calendar in a separate process: what is asked as a line of JSON and the file after it, prints JSON.

A calendar is hostile text: an event that recurs every second, or one that never does, takes hours and all
memory. The process limits itself, and its parent ends it when it takes too long.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

#: What the processor works for, in seconds, and all memory that the process may ask for.
CPU_SECONDS = 10
MEMORY_BYTES = 1 << 30
#: Events that are passed on, the earliest first, and people and characters of each.
MOST_EVENTS = 2000
_MOST_PEOPLE = 20
_LONGEST = 200
_DAY = timedelta(days=1)
#: What Microsoft's calendars say of the time of an event in which its owner is there.
_PRESENT = ("FREE", "TENTATIVE", "WORKINGELSEWHERE")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        answer = read(sys.stdin.buffer.read(), **asked)
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError) as error:
        answer = {"fault": f"It cannot be read: {str(error)[:_LONGEST] or type(error).__name__}."}
    json.dump(answer, sys.stdout)


def read(content: bytes, *, begin: str, end: str, zone: str, absences: bool) -> dict[str, Any]:
    """Return the events that overlap with the time from `begin` to `end`, with the calendar's time zone.

    `zone` is that of times without one, if the calendar names none. With `absences`, only events count in
    which their owner is away, and nothing is returned of them but the time. `notes` says what is passed over.
    """
    if b"BEGIN:VCALENDAR" not in content[:4096].upper():
        return {"fault": "It is not a calendar: a file in the format iCalendar begins with BEGIN:VCALENDAR."}
    from icalendar import Calendar
    from recurring_ical_events import of  # type: ignore[import-untyped]

    calendar = Calendar.from_ical(content.decode("utf-8-sig", errors="replace").replace("\0", ""))
    notes = []
    named = str(calendar.get("X-WR-TIMEZONE") or zone)
    local = _zone(named)
    if local is None:
        notes.append(f"Its time zone “{named[:60]}” is unknown; {zone} is used.")
        named, local = zone, ZoneInfo(zone)
        calendar.pop("X-WR-TIMEZONE", None)
    found = []
    events = calendar.walk("VEVENT")
    unreadable = [event for event in events if event.errors]
    for event in unreadable:
        if event in calendar.subcomponents:
            calendar.subcomponents.remove(event)
    if unreadable:
        notes.append(f"{len(unreadable)} of its events cannot be read and are passed over.")
    if unknown := _unknown_zone(events):
        notes.append(f"The time zone “{unknown[:60]}” is unknown; {named} is used.")
    first, last = datetime.fromisoformat(begin), datetime.fromisoformat(end)
    for event in of(calendar, skip_bad_series=True).between(first, last):
        if one := _absence(event, local, first, last) if absences else _shift(event, local):
            found.append(one)
    found.sort(key=lambda one: str(one.get("begin") or one.get("first")))
    if len(found) > MOST_EVENTS:
        notes.append(f"It has more than {MOST_EVENTS} events until {last:%Y-%m-%d}; the first ones are used.")
    return {"events": found[:MOST_EVENTS], "zone": named, "notes": notes}


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None


def _unknown_zone(events: list[Any]) -> str:
    """Return the name of a time zone that is neither known nor defined in the calendar; "" without one."""
    for event in events:
        for value in (event.get("DTSTART"), event.get("DTEND")):
            zone = getattr(value, "params", {}).get("TZID")
            if zone and getattr(getattr(value, "dt", None), "tzinfo", None) is None:
                return str(zone)
    return ""


def _times(event: Any, local: tzinfo) -> tuple[datetime, datetime, bool]:
    """Return begin and end in UTC, and whether the event takes whole days."""
    begin, end = event.start, event.end
    if isinstance(begin, datetime):
        first, last = (one if one.tzinfo else one.replace(tzinfo=local) for one in (begin, end))
        return first.astimezone(UTC), last.astimezone(UTC), False
    if end <= begin:
        end = begin + _DAY
    first, last = (datetime.combine(day, time(0), tzinfo=local) for day in (begin, end))
    return first.astimezone(UTC), last.astimezone(UTC), True


def _is_cancelled(event: Any) -> bool:
    return str(event.get("STATUS", "")).upper() == "CANCELLED"


def _shift(event: Any, local: tzinfo) -> dict[str, Any] | None:
    """Return a shift: its time, the addresses of attendees who did not decline, and its title."""
    if _is_cancelled(event):
        return None
    begin, end, _ = _times(event, local)
    attendees = event.get("ATTENDEE") or []
    people = [
        str(one).split(":", 1)[-1][:_LONGEST]
        for one in (attendees if isinstance(attendees, list) else [attendees])
        if str(one).lower().startswith("mailto:")
        and str(one.params.get("PARTSTAT", "")).upper() != "DECLINED"
    ]
    summary = " ".join(str(event.get("SUMMARY", "")).split())[:_LONGEST]
    return {
        "begin": begin.isoformat(), "end": end.isoformat(), "people": people[:_MOST_PEOPLE],
        "summary": summary,
    }  # fmt: skip


def _absence(event: Any, local: tzinfo, first: datetime, last: datetime) -> dict[str, Any] | None:
    """Return the days of an all-day event, or the times of one that says “out of office” or takes a day.

    Events that are marked as free do not count. What is before `first` or after `last` is cut off.
    """
    status = str(event.get("X-MICROSOFT-CDO-BUSYSTATUS", "")).upper()
    is_free = str(event.get("TRANSP", "")).upper() == "TRANSPARENT" or status in _PRESENT
    if _is_cancelled(event) or is_free:
        return None
    begin, end, all_day = _times(event, local)
    if all_day:
        days = (event.start, max(event.start, event.end - _DAY))
        return {
            "first": max(days[0], first.date()).isoformat(),
            "last": min(days[1], last.date()).isoformat(),
        }
    if status == "OOF" or end - begin >= _DAY:
        return {"begin": max(begin, first).isoformat(), "end": min(end, last).isoformat()}
    return None


if __name__ == "__main__":
    main()

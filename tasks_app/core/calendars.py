"""Calendars in the format iCalendar: who is on call, and when somebody is away (SPEC Q1, Q4).

`calendar_program.py` reads them in a process of its own. The time is passed in, never read here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from tasks_app.core import calendar_program
from tasks_app.core.errors import BadInput
from tasks_app.core.types import JsonObject

#: Bytes of a calendar, and seconds for which one is read.
MOST_BYTES = 4 * 2**20
TIME_LIMIT = 20.0

#: What divides the names in a title such as “On Call - Jane Doe - Payments” or “[L1] jane, joe”.
_BETWEEN_NAMES = re.compile(
    r"\[[^\]]*\]|[-–—]\s|\s[-–—]|[,;:/|&+()<>]|\band\b|\bon[ -]?call\b", re.IGNORECASE
)


@dataclass(frozen=True)
class CalendarContent:
    """The events of a calendar in a period, as `calendar_program` returns them, and what it passed over."""

    events: list[JsonObject]
    zone: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shift:
    """Time in which somebody is on call: the e-mail addresses of `people` if it has some, and its title."""

    begin: datetime
    end: datetime
    people: tuple[str, ...]
    summary: str

    @property
    def label(self) -> str:
        """Return what pages call it: its title, else its people."""
        return self.summary or ", ".join(self.people)

    @property
    def names(self) -> tuple[str, ...]:
        """Return what may be names of people in the title, in its order."""
        pieces = (piece.strip(" \t.-–—'\"") for piece in _BETWEEN_NAMES.split(self.summary))
        return tuple(dict.fromkeys(filter(None, pieces)))

    def why(self, moment: datetime, zone: ZoneInfo) -> str:
        """Return the reason for which its people are asked, such as “on call until 18:00 Europe/Berlin”."""
        end, now = self.end.astimezone(zone), moment.astimezone(zone)
        day = "" if end.date() == now.date() else f"{end.day} {end:%b} "
        return f"on call until {day}{end:%H:%M} {zone.key}"


def shifts_from(events: Iterable[object]) -> list[Shift]:
    """Return the shifts of events that were read without `absences`."""
    return [
        Shift(
            datetime.fromisoformat(one["begin"]),
            datetime.fromisoformat(one["end"]),
            tuple(one["people"]),
            one["summary"],
        )
        for one in events
        if isinstance(one, dict)
    ]


def shifts_at(moment: datetime, shifts: Sequence[Shift]) -> list[Shift]:
    """Return the shifts that cover the moment. The one that ends is not on call any more."""
    return [one for one in shifts if one.begin <= moment < one.end]


def read_calendar(
    content: bytes, *, begin: datetime, end: datetime, zone: str = "UTC", absences: bool = False
) -> CalendarContent:
    """Return what a calendar says of the time from `begin` to `end`, in a time that is bounded.

    Raises BadInput, whose message says as a sentence why it cannot be read.
    """
    if len(content) > MOST_BYTES:
        raise BadInput(f"It is larger than {MOST_BYTES >> 20} MiB.", where="calendar")
    asked = {"begin": begin.isoformat(), "end": end.isoformat(), "zone": zone, "absences": absences}
    try:
        done = subprocess.run(
            [sys.executable, "-I", calendar_program.__file__],
            input=json.dumps(asked).encode() + b"\n" + content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIME_LIMIT,
            env={},
            cwd=Path(sys.prefix),
        )
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        raise BadInput(
            f"It cannot be read within {calendar_program.CPU_SECONDS} seconds and "
            f"{calendar_program.MEMORY_BYTES >> 30} GiB of memory. Does an event recur every second?",
            where="calendar",
        ) from None
    if fault := answer.get("fault"):
        raise BadInput(fault, where="calendar")
    return CalendarContent(answer["events"], answer["zone"], tuple(answer["notes"]))

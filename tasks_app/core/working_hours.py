"""Working hours of people: when they work, and when so many of these hours will have passed (SPEC Q4).

The time is passed in, never read here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

Period = tuple[datetime, datetime]


@dataclass(frozen=True)
class Hours:
    """The working hours that begin on a weekday, by local clocks.

    If `end` is not later than `begin`, it is on the next day; 00:00 is the end of the day. From 00:00 to
    00:00 is a whole day. Other times that are equal are refused: they could mean nothing.
    """

    begin: time
    end: time

    def __post_init__(self) -> None:
        if self.begin == self.end != time(0):
            raise ValueError("working hours do not begin and end at the same time")

    def on(self, day: date, zone: ZoneInfo) -> Period:
        """Return begin and end in UTC of the hours that begin on a local day."""
        begin = _moment(day, self.begin, zone, fold=0)
        last = day + timedelta(days=self.end <= self.begin)
        return begin, _moment(last, self.end, zone, fold=int(self.end != time(0)))


@dataclass(frozen=True)
class Absence:
    """Days off, the first and the last included, with a word for others, such as “holiday”."""

    first: date
    last: date
    word: str = ""


_NINE_TO_SIX = Hours(time(9), time(18))
#: Monday to Friday, for people who said nothing else.
USUAL_WEEK: tuple[Hours | None, ...] = (*[_NINE_TO_SIX] * 5, None, None)


@dataclass(frozen=True)
class Schedule:
    """When somebody works: the hours of each weekday from Monday on, in a time zone, except absences.

    A day off takes the hours away that begin on it, not the rest of a night that began on the day before.
    """

    zone: ZoneInfo
    week: Sequence[Hours | None] = USUAL_WEEK
    absences: Sequence[Absence] = ()

    def __post_init__(self) -> None:
        if len(self.week) != 7 or not any(self.week):
            raise ValueError("a week has seven days, and work on one of them")

    def absence_at(self, moment: datetime) -> Absence | None:
        """Return the absence that covers the local day; of a night, the day on which it began."""
        day = moment.astimezone(self.zone).date()
        before = day - timedelta(days=1)
        hours = self.week[before.weekday()]
        if hours and moment < hours.on(before, self.zone)[1]:
            day = before
        return self._absence_on(day)

    def _absence_on(self, day: date) -> Absence | None:
        return next((one for one in self.absences if one.first <= day <= one.last), None)

    def periods(self, start: datetime) -> Iterator[Period]:
        """Yield the working periods that end after `start`, in UTC and without end."""
        day = start.astimezone(self.zone).date() - timedelta(days=1)  # its end may be later
        while True:
            hours = self.week[day.weekday()]
            if hours and not self._absence_on(day):
                begin, end = hours.on(day, self.zone)
                if end > max(begin, start):
                    yield begin, end
            day += timedelta(days=1)


def absences_from(
    events: Iterable[Mapping[str, object]], zone: ZoneInfo, week: Sequence[Hours | None]
) -> list[Absence]:
    """Return the absences of a calendar's events, which have days or times (`core/calendar_program.py`).

    An event with times takes the days off of which it covers all working hours.
    """
    found = []
    for event in events:
        if "first" in event:
            first, last = (date.fromisoformat(str(event[name])) for name in ("first", "last"))
            found.append(Absence(first, last))
            continue
        begin, end = (datetime.fromisoformat(str(event[name])) for name in ("begin", "end"))
        day = begin.astimezone(zone).date()
        while day <= end.astimezone(zone).date():
            hours = week[day.weekday()]
            if hours and begin <= hours.on(day, zone)[0] and hours.on(day, zone)[1] <= end:
                found.append(Absence(day, day))
            day += timedelta(days=1)
    return sorted(found, key=lambda one: one.first)


def _moment(day: date, clock: time, zone: ZoneInfo, *, fold: int) -> datetime:
    """Return when local clocks show the time: for fold 1 the second time, if they are set back.

    If they skip it, it is the moment at which they are set forward.
    """
    local = datetime.combine(day, clock, tzinfo=zone)
    first, second = (local.replace(fold=one).astimezone(UTC) for one in (0, 1))
    if first <= second:
        return second if fold else first
    # Skipped: the offset changes between `second` and `first`.
    before = second.astimezone(zone).utcoffset()
    while first - second > timedelta(seconds=1):
        middle = second + (first - second) // 2
        if middle.astimezone(zone).utcoffset() == before:
            second = middle
        else:
            first = middle
    return first.replace(microsecond=0)


def _merged(periods: Iterator[Period]) -> Iterator[Period]:
    """Yield periods that come ordered by their beginning, with those that overlap or touch as one."""
    begin, end = next(periods)
    for following in periods:
        if following[0] <= end:
            end = max(end, following[1])
        else:
            yield begin, end
            begin, end = following


def working_until(start: datetime, worked: timedelta, schedules: Sequence[Schedule]) -> datetime:
    """Return when so much time will have passed since `start` in which at least one of the people works."""
    start, left = start.astimezone(UTC), worked
    for begin, end in _merged(heapq.merge(*(one.periods(start) for one in schedules))):
        begin = max(begin, start)
        if end - begin >= left:
            return begin + left
        left -= end - begin
    raise AssertionError("periods have no end")


def next_working(moment: datetime, schedule: Schedule) -> datetime:
    """Return the time itself if the person works then, else when they begin again."""
    begin, _ = next(schedule.periods(moment))
    return max(begin, moment.astimezone(UTC))

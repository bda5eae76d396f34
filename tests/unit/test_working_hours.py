"""Working hours of people, zones, absences, daylight saving (SPEC Q4)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks_app.core.working_hours import (
    USUAL_WEEK,
    Absence,
    Hours,
    Schedule,
    absences_from,
    next_working,
    working_until,
)

BERLIN, NEW_YORK, LORD_HOWE, TOKYO, SANTIAGO = map(
    ZoneInfo, ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "America/Santiago")
)
MINUTE = timedelta(minutes=1)


def local(zone: ZoneInfo, *numbers: int) -> datetime:
    return datetime(*numbers, tzinfo=zone)  # type: ignore[arg-type,misc]


@cache
def minutes_of(zone: ZoneInfo, day: date) -> list[tuple[datetime, time]]:
    """Every minute of the local day, with what the local clock shows."""
    first = datetime.combine(day, time(0), tzinfo=UTC) - timedelta(hours=15)
    minutes = [first + number * MINUTE for number in range(54 * 60)]
    shown = [(minute, minute.astimezone(zone)) for minute in minutes]
    return [(minute, here.time()) for minute, here in shown if here.date() == day]


def _minutes_before(end: time, minutes: list[tuple[datetime, time]]) -> int:
    """How many minutes of a day pass until the clock shows its end for the last time."""
    before = [n for n, (_, clock) in enumerate(minutes) if end == time(0) or clock < end]
    return max(before, default=-1) + 1


def model_minutes(schedule: Schedule, first: date, days: int) -> set[datetime]:
    """Every minute of work of these days, found by looking at the local clock in each minute."""
    found: set[datetime] = set()
    for number in range(-2, days):
        day = first + timedelta(days=number)
        hours = schedule.week[day.weekday()]
        if hours is None or any(one.first <= day <= one.last for one in schedule.absences):
            continue
        minutes = minutes_of(schedule.zone, day)
        is_night = time(0) != hours.end <= hours.begin
        begins = next((n for n, (_, clock) in enumerate(minutes) if clock >= hours.begin), len(minutes))
        ends = len(minutes) if is_night else _minutes_before(hours.end, minutes)
        found.update(minute for minute, _ in minutes[begins:ends])
        if is_night:
            rest = minutes_of(schedule.zone, day + timedelta(days=1))
            found.update(minute for minute, _ in rest[: _minutes_before(hours.end, rest)])
    return found


def model_until(start: datetime, minutes: int, schedules: Sequence[Schedule], days: int) -> datetime | None:
    works = set().union(*(model_minutes(one, start.date(), days) for one in schedules))
    after = sorted(minute for minute in works if minute >= start)
    return after[minutes - 1] + MINUTE if len(after) >= minutes else None


clocks = st.builds(time, st.integers(0, 23), st.sampled_from([0, 15, 30]))
hours = st.one_of(
    st.none(),
    st.tuples(clocks, clocks)
    .filter(lambda one: one[0] != one[1] or one[1] == time(0))
    .map(lambda one: Hours(*one)),
)
#: Around both days of daylight saving, a leap day, and a turn of the year.
days = st.sampled_from(
    [
        date(2026, 3, 27),
        date(2026, 10, 23),
        date(2028, 2, 27),
        date(2026, 12, 30),
        date(2026, 4, 3),
        date(2026, 3, 6),
    ]
)
absences = st.builds(
    lambda first, more: Absence(first, first + timedelta(days=more)),
    days.flatmap(lambda day: st.integers(-2, 6).map(lambda more: day + timedelta(days=more))),
    st.integers(0, 3),
)
schedules = st.builds(
    Schedule,
    st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, TOKYO]),
    st.lists(hours, min_size=7, max_size=7).filter(any),
    st.lists(absences, max_size=2),
)
starts = st.tuples(days, st.integers(0, 4 * 24 * 60)).map(
    lambda one: datetime.combine(one[0], time(0), tzinfo=UTC) + one[1] * MINUTE
)


@settings(deadline=None, max_examples=60)
@given(start=starts, minutes=st.integers(1, 1500), people=st.lists(schedules, min_size=1, max_size=3))
def test_working_time_passes_as_if_each_minute_were_looked_at(
    start: datetime, minutes: int, people: list[Schedule]
) -> None:
    """Q4: against a model that looks at the local clock in every minute."""
    expected = model_until(start, minutes, people, days=12)
    found = working_until(start, minutes * MINUTE, people)
    if expected is None:
        assert found > start + timedelta(days=8)
    else:
        assert found == expected


#: The Sundays on which clocks are set forward and back: in Berlin and New York by an hour in the night, on
#: Lord Howe Island by half an hour, in Santiago at midnight.
CHANGES = [
    (BERLIN, date(2026, 3, 29)), (BERLIN, date(2026, 10, 25)),
    (NEW_YORK, date(2026, 3, 8)), (NEW_YORK, date(2026, 11, 1)),
    (LORD_HOWE, date(2026, 10, 4)), (LORD_HOWE, date(2026, 4, 5)),
    (SANTIAGO, date(2026, 9, 6)), (SANTIAGO, date(2026, 4, 5)),
]  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(
    change=st.sampled_from(CHANGES),
    begin=st.builds(time, st.integers(18, 23), st.sampled_from([0, 15, 30])),
    end=st.builds(time, st.integers(0, 9), st.sampled_from([15, 30, 45])),
    ahead=st.integers(0, 36 * 60),
    minutes=st.integers(1, 900),
)
def test_nights_over_changes_of_clocks_pass_as_if_each_minute_were_looked_at(
    change: tuple[ZoneInfo, date], begin: time, end: time, ahead: int, minutes: int
) -> None:
    """Q4: hours over midnight, in both directions."""
    zone, sunday = change
    person = Schedule(zone, [Hours(begin, end)] * 7)
    start = datetime.combine(sunday, time(6), tzinfo=UTC) - ahead * MINUTE
    night = 60 * (24 - begin.hour + end.hour) - begin.minute + end.minute
    days = 4 + minutes // night  # the clocks may take an hour of one
    assert working_until(start, minutes * MINUTE, [person]) == model_until(start, minutes, [person], days)
    works = [minute for minute in model_minutes(person, start.date(), 6) if minute >= start]
    assert next_working(start, person) == min(works)


@settings(deadline=None, max_examples=40)
@given(start=starts, person=schedules)
def test_the_next_working_minute_is_the_first_of_the_model(start: datetime, person: Schedule) -> None:
    """Q4."""
    after = [minute for minute in model_minutes(person, start.date(), 12) if minute >= start]
    if after:
        assert next_working(start, person) == min(after)


def test_four_hours_over_a_weekend() -> None:
    """Q4: Friday 16:00 and four hours are Monday 11:00."""
    friday = local(BERLIN, 2026, 11, 27, 16)
    assert working_until(friday, timedelta(hours=4), [Schedule(BERLIN)]) == local(BERLIN, 2026, 11, 30, 11)


@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)], ids=["forward", "back"])
def test_days_of_daylight_saving_have_their_own_length(day: tuple[int, int, int]) -> None:
    """Q4: who works around the clock on a Sunday works 23 or 25 hours."""
    person = Schedule(BERLIN, [None] * 6 + [Hours(time(0), time(0))])
    worked = timedelta(hours=23 if day[1] == 3 else 25)
    midnight = datetime(*day, tzinfo=BERLIN)
    end = working_until(midnight, worked, [person]).astimezone(BERLIN)
    assert end == midnight + timedelta(days=1) and end.time() == time(0)


def test_clocks_that_skip_the_beginning_of_work_begin_it_when_they_are_set_forward() -> None:
    """Q4: at 02:00 the clocks of Berlin show 03:00."""
    person = Schedule(BERLIN, [None] * 6 + [Hours(time(2, 30), time(5))])
    midnight = local(BERLIN, 2026, 3, 29)
    assert next_working(midnight, person) == datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_a_leap_day_is_a_day_like_others() -> None:
    """Q4: 2028-02-29 is a Tuesday."""
    monday = local(BERLIN, 2028, 2, 28, 17)
    assert working_until(monday, timedelta(hours=10), [Schedule(BERLIN)]) == local(BERLIN, 2028, 2, 29, 18)


def test_a_holiday_of_three_weeks_is_no_working_time() -> None:
    """Q4: it is counted for others only, if somebody else is asked, too."""
    holiday = Absence(date(2026, 7, 20), date(2026, 8, 9), "holiday")
    away, there = Schedule(BERLIN, absences=[holiday]), Schedule(NEW_YORK)
    friday = local(BERLIN, 2026, 7, 17, 17)
    assert working_until(friday, timedelta(hours=2), [away]) == local(BERLIN, 2026, 8, 10, 10)
    assert next_working(local(BERLIN, 2026, 7, 20, 9), away) == local(BERLIN, 2026, 8, 10, 9)
    assert away.absence_at(local(BERLIN, 2026, 8, 9, 23)) == holiday and not away.absence_at(friday)
    # New York works from 15:00 to 24:00 in Berlin.
    monday = local(BERLIN, 2026, 7, 20, 9)
    assert working_until(monday, timedelta(hours=2), [away, there]) == local(BERLIN, 2026, 7, 20, 17)


def test_hours_in_which_two_work_count_once() -> None:
    """Q4: a rung counts time in which at least one of those asked works."""
    early = Schedule(BERLIN, [Hours(time(6), time(12))] * 7)
    late = Schedule(BERLIN, [Hours(time(10), time(16))] * 7)
    morning = local(BERLIN, 2026, 11, 27, 6)
    assert working_until(morning, timedelta(hours=10), [early, late]) == local(BERLIN, 2026, 11, 27, 16)


@pytest.mark.parametrize(
    ("saturday", "hours_worked"), [((2026, 3, 28), 7), ((2026, 10, 24), 9), ((2026, 11, 28), 8)]
)
def test_a_night_over_daylight_saving_has_its_own_length(
    saturday: tuple[int, int, int], hours_worked: int
) -> None:
    """Q4: from 22:00 to 06:00 clocks are set forward, set back, or left alone."""
    person = Schedule(BERLIN, [None] * 5 + [Hours(time(22), time(6)), None])
    evening = datetime(*saturday, 20, tzinfo=BERLIN)
    assert next_working(evening, person) == datetime(*saturday, 22, tzinfo=BERLIN)
    end = datetime(*saturday, 6, tzinfo=BERLIN) + timedelta(days=1)
    assert working_until(evening, timedelta(hours=hours_worked), [person]) == end
    assert working_until(evening, timedelta(hours=hours_worked) + MINUTE, [person]) > end + timedelta(days=6)


@pytest.mark.parametrize(
    ("end", "last_minute"),
    [(time(2, 30), datetime(2026, 3, 29, 1, tzinfo=UTC)), (time(3), datetime(2026, 3, 29, 1, tzinfo=UTC))],
)
def test_a_night_that_ends_in_the_skipped_hour_ends_when_clocks_are_set_forward(
    end: time, last_minute: datetime
) -> None:
    """Q4: at 02:00 the clocks of Berlin show 03:00."""
    person = Schedule(BERLIN, [None] * 5 + [Hours(time(22), end), None])
    assert working_until(local(BERLIN, 2026, 3, 28, 20), timedelta(hours=4), [person]) == last_minute


def test_a_night_belongs_to_the_day_on_which_it_begins() -> None:
    """Q4: a day off on Tuesday takes the night to Wednesday away, not the rest of Monday's."""
    off = Absence(date(2026, 12, 1), date(2026, 12, 1), "holiday")
    person = Schedule(BERLIN, [Hours(time(22), time(6))] * 7, [off])
    tuesday, wednesday = local(BERLIN, 2026, 12, 1, 2), local(BERLIN, 2026, 12, 2, 2)
    assert next_working(tuesday, person) == tuesday and person.absence_at(tuesday) is None
    assert next_working(wednesday, person) == local(BERLIN, 2026, 12, 2, 22)
    assert person.absence_at(wednesday) == off and person.absence_at(local(BERLIN, 2026, 12, 2, 12)) is None
    event = {"begin": "2026-12-01T20:00:00+00:00", "end": "2026-12-02T06:00:00+00:00"}
    assert absences_from([event], BERLIN, person.week) == [Absence(off.first, off.last)]


def test_hours_that_overlap_those_of_the_night_before_count_once() -> None:
    """Q4"""
    person = Schedule(BERLIN, [Hours(time(22), time(10)), Hours(time(8), time(12)), *[None] * 5])
    monday = local(BERLIN, 2026, 11, 30, 12)
    assert working_until(monday, timedelta(hours=14), [person]) == local(BERLIN, 2026, 12, 1, 12)


def test_a_week_without_work_and_hours_without_a_length_are_refused() -> None:
    """Q4: otherwise no rung would ever be due."""
    with pytest.raises(ValueError, match="week"):
        Schedule(BERLIN, [None] * 7)
    with pytest.raises(ValueError, match="hours"):
        Hours(time(18), time(18))
    assert USUAL_WEEK[4] == Hours(time(9), time(18)) and USUAL_WEEK[5] is None


@pytest.mark.parametrize(
    ("begin", "end", "days"),
    [
        ("2026-12-01T08:00:00+00:00", "2026-12-01T17:00:00+00:00", ["2026-12-01"]),
        ("2026-12-01T08:01:00+00:00", "2026-12-01T17:00:00+00:00", []),
        ("2026-12-01T08:00:00+00:00", "2026-12-01T16:59:00+00:00", []),
        ("2026-12-04T12:00:00+00:00", "2026-12-08T12:00:00+00:00", ["2026-12-07"]),
        ("2026-12-05T00:00:00+00:00", "2026-12-07T00:00:00+00:00", []),
    ],
)
def test_an_event_with_times_takes_the_days_off_whose_hours_it_covers(
    begin: str, end: str, days: list[str]
) -> None:
    """Q4: 2026-12-01 is a Tuesday; in Berlin 9:00 to 18:00 are 8:00 to 17:00 UTC."""
    found = absences_from([{"begin": begin, "end": end}], BERLIN, USUAL_WEEK)
    assert [str(one.first) for one in found] == days and all(one.first == one.last for one in found)


def test_all_day_events_are_absences_as_they_are() -> None:
    """Q4"""
    events = [{"first": "2026-12-24", "last": "2027-01-01"}, {"first": "2026-12-01", "last": "2026-12-01"}]
    days = [Absence(date(2026, 12, 1), date(2026, 12, 1)), Absence(date(2026, 12, 24), date(2027, 1, 1))]
    assert absences_from(events, BERLIN, USUAL_WEEK) == days

"""Calendars in the format iCalendar: shifts, absences, and those that are hostile (SPEC Q1, Q4)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tasks_app.core import calendar_program, calendars
from tasks_app.core.calendars import CalendarContent, Shift, read_calendar, shifts_at, shifts_from
from tasks_app.core.errors import BadInput

#: A Saturday.
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
ONCE = "DTSTART:20261128T080000Z\nDTEND:20261128T180000Z"


def event(*lines: str, title: str = "ann") -> str:
    return "\n".join(["BEGIN:VEVENT", f"UID:{hash(lines)}@x", f"SUMMARY:{title}", *lines, "END:VEVENT"])


def calendar(*parts: str, head: str = "") -> bytes:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test", *head.split("\n"), *parts, "END:VCALENDAR"]
    return "\r\n".join("\n".join(filter(None, lines)).split("\n")).encode()


def read(content: bytes, *, absences: bool = False, days: int = 35) -> CalendarContent:
    return read_calendar(content, begin=NOW, end=NOW + timedelta(days=days), absences=absences)


def on_call(content: bytes, moment: datetime = NOW) -> list[str]:
    return [one.summary for one in shifts_at(moment, shifts_from(read(content).events))]


@pytest.mark.parametrize(
    ("lines", "is_on_call"),
    [
        ([ONCE], True),
        (["DTSTART:20261128T080000Z", "DURATION:PT10H"], True),
        (["DTSTART:20261128T110000Z", "DTEND:20261128T120000Z"], False),
        (["DTSTART:20261128T120000Z", "DTEND:20261128T130000Z"], True),
        (["DTSTART;TZID=Europe/Berlin:20261128T123000", "DTEND;TZID=Europe/Berlin:20261128T133000"], True),
        (["DTSTART;TZID=Europe/Berlin:20261128T113000", "DTEND;TZID=Europe/Berlin:20261128T123000"], False),
        (["DTSTART;TZID=W. Europe Standard Time:20261128T123000", "DURATION:PT1H"], True),
        (["DTSTART;VALUE=DATE:20261128"], True),
        (["DTSTART;VALUE=DATE:20261123", "DTEND;VALUE=DATE:20261128"], False),
        (["DTSTART:20260103T080000Z", "DTEND:20260103T180000Z", "RRULE:FREQ=WEEKLY"], True),
        (["DTSTART:20260103T080000Z", "DTEND:20260103T180000Z", "RRULE:FREQ=WEEKLY;INTERVAL=2"], False),
        (
            [
                "DTSTART:20260103T080000Z",
                "DTEND:20260103T180000Z",
                "RRULE:FREQ=WEEKLY",
                "EXDATE:20261128T080000Z",
            ],
            False,
        ),
        (["DTSTART:20260103T080000Z", "DTEND:20260103T180000Z", "RDATE:20261128T080000Z"], True),
        (["DTSTART:20260103T080000Z", "DTEND:20260103T180000Z", "RRULE:FREQ=WEEKLY;COUNT=3"], False),
        ([ONCE, "STATUS:CANCELLED"], False),
        ([ONCE, "TRANSP:TRANSPARENT"], True),
    ],
)
def test_an_event_that_covers_the_moment_is_a_shift(lines: list[str], is_on_call: bool) -> None:
    """Q1: recurrences, exceptions, time zones, all-day events."""
    assert bool(on_call(calendar(event(*lines)))) is is_on_call


def test_a_swapped_shift_replaces_that_of_the_series() -> None:
    """Q1: RECURRENCE-ID."""
    series = (
        "BEGIN:VEVENT\nUID:a\nSUMMARY:ann\nDTSTART:20260103T080000Z\nDTEND:20260103T180000Z\n"
        "RRULE:FREQ=WEEKLY\nEND:VEVENT"
    )
    swapped = f"BEGIN:VEVENT\nUID:a\nSUMMARY:bob\n{ONCE}\nRECURRENCE-ID:20261128T080000Z\nEND:VEVENT"
    assert on_call(calendar(series, swapped)) == ["bob"]
    assert on_call(calendar(series, swapped), NOW + timedelta(days=7)) == ["ann"]


def test_all_day_events_are_days_of_the_calendar_s_zone() -> None:
    """Q1"""
    tokyo = calendar(event("DTSTART;VALUE=DATE:20261129"), head="X-WR-TIMEZONE:Asia/Tokyo")
    assert on_call(tokyo, datetime(2026, 11, 28, 15, tzinfo=UTC)) == ["ann"]
    assert on_call(tokyo, datetime(2026, 11, 28, 14, 59, tzinfo=UTC)) == []
    assert read(tokyo).zone == "Asia/Tokyo"


def test_clocks_that_are_set_back_keep_the_time_of_a_weekly_shift() -> None:
    """Q1: at 09:00 in Berlin, before and after the end of daylight saving."""
    weekly = ["DTSTART;TZID=Europe/Berlin:20261024T090000", "DURATION:PT1H", "RRULE:FREQ=WEEKLY"]
    begins = [one.begin for one in shifts_from(read(calendar(event(*weekly))).events)]
    assert begins[0] == datetime(2026, 12, 5, 8, tzinfo=UTC)


def test_attendees_are_people_unless_they_declined() -> None:
    """Q1"""
    (shift,) = shifts_from(
        read(
            calendar(
                event(
                    ONCE,
                    "ATTENDEE;CN=Ann:mailto:Ann@example.org",
                    "ATTENDEE;PARTSTAT=DECLINED:mailto:bob@example.org",
                    "ATTENDEE:urn:uuid:1",
                    "ORGANIZER:mailto:boss@example.org",
                )
            )
        ).events
    )
    assert shift.people == ("Ann@example.org",)


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("On Call - Jane Doe - Payments", ("Jane Doe", "Payments")),
        ("jane@example.org", ("jane@example.org",)),
        ("[L1] jane, joe", ("jane", "joe")),
        ("On-call: Jane Doe and Joe (backup)", ("Jane Doe", "Joe", "backup")),
        ("Anne-Marie", ("Anne-Marie",)),
        ("@payments", ("@payments",)),
        ("", ()),
        ("oncall", ()),
    ],
)
def test_names_in_a_title(title: str, names: tuple[str, ...]) -> None:
    """Q1: PagerDuty, Opsgenie, Grafana OnCall, and what people write by hand."""
    assert Shift(NOW, NOW, (), title).names == names


def test_the_reason_has_the_end_and_the_day_if_it_is_another() -> None:
    """Q1"""
    berlin = ZoneInfo("Europe/Berlin")
    shift = Shift(NOW, datetime(2026, 11, 28, 17, tzinfo=UTC), (), "")
    assert shift.why(NOW, berlin) == "on call until 18:00 Europe/Berlin"
    assert shift.why(NOW - timedelta(days=1), berlin) == "on call until 28 Nov 18:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["DTSTART;VALUE=DATE:20261201"], {"first": "2026-12-01", "last": "2026-12-01"}),
        (
            ["DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20270102"],
            {"first": "2026-12-24", "last": "2027-01-01"},
        ),
        (["DTSTART;VALUE=DATE:20261201", "TRANSP:TRANSPARENT"], None),
        (["DTSTART;VALUE=DATE:20261201", "X-MICROSOFT-CDO-BUSYSTATUS:WORKINGELSEWHERE"], None),
        (["DTSTART:20261201T090000Z", "DTEND:20261201T170000Z"], None),
        (
            ["DTSTART:20261201T090000Z", "DTEND:20261201T170000Z", "X-MICROSOFT-CDO-BUSYSTATUS:OOF"],
            {"begin": "2026-12-01T09:00:00+00:00", "end": "2026-12-01T17:00:00+00:00"},
        ),
        (
            ["DTSTART:20261201T000000Z", "DTEND:20261202T000000Z"],
            {"begin": "2026-12-01T00:00:00+00:00", "end": "2026-12-02T00:00:00+00:00"},
        ),
        (["DTSTART:20261201T000000Z", "DTEND:20261202T000000Z", "TRANSP:TRANSPARENT"], None),
        (["DTSTART;VALUE=DATE:20261201", "STATUS:CANCELLED"], None),
    ],
)
def test_what_counts_as_an_absence(lines: list[str], expected: dict[str, str] | None) -> None:
    """Q4: nothing is kept of it but the time."""
    assert read(calendar(event(*lines)), absences=True).events == ([expected] if expected else [])


def test_absences_are_cut_off_at_the_ends_of_the_period() -> None:
    """Q4: a holiday of a thousand years is one of 35 days."""
    events = [
        event("DTSTART;VALUE=DATE:19700101", "DTEND;VALUE=DATE:29700101"),
        event("DTSTART:19700101T000000Z", "DTEND:29700101T000000Z"),
    ]
    days, times = read(calendar(*events), absences=True).events
    assert days == {"first": "2026-11-28", "last": "2027-01-02"}
    assert times == {"begin": "2026-11-28T12:00:00+00:00", "end": "2027-01-02T12:00:00+00:00"}


def test_an_unknown_time_zone_is_noted() -> None:
    """Q1"""
    found = read(calendar(event("DTSTART;TZID=Mars/Crater:20261128T110000", "DURATION:PT2H")))
    assert len(found.events) == 1 and "Mars/Crater" in found.notes[0]
    assert "Mars/X" in read(calendar(event(ONCE), head="X-WR-TIMEZONE:Mars/X")).notes[0]


def test_bytes_that_are_no_text_and_events_without_sense_cost_only_themselves() -> None:
    """Q1"""
    broken = calendar(
        event(ONCE), event("DTSTART:yesterday"), event("DTSTART:20261128T080000Z", "RRULE:FREQ=NEVER")
    )
    found = read(broken.replace(b"SUMMARY:ann", b"SUMMARY:a\xff\xfen", 1))
    assert len(found.events) >= 1 and found.notes


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>Please log in</html>", b"\x00\xff" * 1000, b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n", b"x"],
)
def test_what_is_no_calendar_is_refused(content: bytes) -> None:
    """Q1"""
    with pytest.raises(BadInput):
        read(content)


@pytest.mark.parametrize(
    "lines",
    [
        ["DTSTART:19700101T000000Z", "DURATION:PT1S", "RRULE:FREQ=SECONDLY"],
        ["DTSTART:19700101T000000Z", "DURATION:P99999D", "RRULE:FREQ=MINUTELY"],
    ],
)
def test_an_event_that_recurs_every_second_ends_with_a_fault_in_bounded_time(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q1"""
    monkeypatch.setattr(calendars, "TIME_LIMIT", 3.0)
    began = time.monotonic()
    with pytest.raises(BadInput, match="second"):
        read(calendar(event(*lines)))
    assert time.monotonic() - began < 10


def test_a_rule_that_never_fits_ends() -> None:
    """Q1: 30 February."""
    never = ["DTSTART:20260101T000000Z", "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"]
    assert on_call(calendar(event(*never), event(ONCE))) == ["ann"]


def test_huge_calendars_are_refused_or_cut() -> None:
    """Q1"""
    with pytest.raises(BadInput, match="MiB"):
        read(calendar("X-A:" + "a" * calendars.MOST_BYTES))
    often = calendar(event("DTSTART:20261128T000000Z", "DURATION:PT1M", "RRULE:FREQ=MINUTELY;COUNT=3000"))
    found = read(often)
    assert len(found.events) == calendar_program.MOST_EVENTS and found.notes

"""The reset time in a 429's headers (P8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tasks_app.agent.proxy.meter import LONGEST, reset_time

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LIMIT = "anthropic-ratelimit-"


def spent(kind: str, reset: str, remaining: str = "0") -> dict[str, str]:
    return {f"{LIMIT}{kind}-reset": reset, f"{LIMIT}{kind}-remaining": remaining}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3600", 3600),
        (" 90 ", 90),
        ("1.5", 1.5),
        ("0", 0),
        ("Sun, 01 Mar 2026 13:00:00 GMT", 3600),
        ("Sun, 01 Mar 2026 13:00:00 -0000", 3600),
    ],
)
def test_retry_after_is_in_seconds_or_a_date(value: str, seconds: float) -> None:
    assert reset_time({"Retry-After": value}, now=NOW) == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value", ["2026-03-01T13:00:00Z", "2026-03-01T14:00:00+01:00", "2026-03-01T13:00:00.000Z"]
)
def test_a_spent_allowance_names_its_reset(value: str) -> None:
    assert reset_time(spent("requests", value), now=NOW) == NOW + timedelta(hours=1)


def test_the_latest_counts_and_allowances_that_are_left_do_not() -> None:
    headers = {
        "retry-after": "60",
        **spent("requests", "2026-03-01T12:05:00Z"),
        **spent("input-tokens", "2026-03-01T12:30:00Z"),
        **spent("output-tokens", "2026-03-01T18:00:00Z", remaining="4000"),
        f"{LIMIT}tokens-reset": "2026-03-01T19:00:00Z",
    }
    assert reset_time(headers, now=NOW) == NOW + timedelta(minutes=30)


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-5", "nan", "inf", "1e9", "٣", "Sun, 99 Mar 2026 13:00:00 GMT", "2026-13-01T00:00Z"],
)
def test_a_value_that_is_not_a_time_is_ignored(value: str) -> None:
    headers = {"retry-after": value, **spent("requests", value)}
    assert reset_time(headers, now=NOW) is None
    assert reset_time({**headers, **spent("tokens", "2026-03-01T12:30:00Z")}, now=NOW) == NOW + timedelta(
        minutes=30
    )


def test_without_a_word_of_it_there_is_no_time() -> None:
    assert reset_time({"content-type": "application/json"}, now=NOW) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "Sun, 01 Mar 2020 13:00:00 GMT"},
        spent("requests", "0001-01-01T00:00:00Z"),
        spent("requests", "2026-03-01T11:59:59"),
    ],
)
def test_a_time_in_the_past_is_now(headers: dict[str, str]) -> None:
    assert reset_time(headers, now=NOW) == NOW


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "9" * 400},
        {"retry-after": "Fri, 01 Mar 2126 13:00:00 GMT"},
        spent("requests", "9999-12-31T23:59:59Z"),
    ],
)
def test_no_limit_is_further_than_a_month_away(headers: dict[str, str]) -> None:
    assert reset_time(headers, now=NOW) == NOW + LONGEST


def test_an_offset_past_the_calendar_is_no_time() -> None:
    assert reset_time(spent("requests", "9999-12-31T23:59:59-10:00"), now=NOW) is None

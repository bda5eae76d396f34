"""W6, pure: which addresses may be connected to, when something is due, and what hostile text becomes."""

from __future__ import annotations

import hashlib
import hmac
import socket
from datetime import UTC, datetime, time, timedelta
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tasks_app.core.allowed_networks import IpAddressRefused, is_allowed, resolve
from tasks_app.models import Digest, Preferences, User
from tasks_app.notifications.chat_child import option_error
from tasks_app.notifications.message import neutralise_markup, one_line, to_lines
from tasks_app.notifications.preferences import MAX_ATTEMPTS, after_quiet_hours, retry_delay, when_due
from tasks_app.notifications.webhook import signature

INSIDE = (
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd12:3456::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1", "fec0::1", "2001:db8::1"),
    *("64:ff9b:1::7f00:1", "192.0.0.192", "192.88.99.1", "3fff::1", "168.63.129.16"),
)
OUTSIDE = ("8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.parametrize("number", INSIDE)
def test_nothing_inside_a_network_is_connected_to(number: str) -> None:
    assert not is_allowed(ip_address(number))


@pytest.mark.parametrize("number", OUTSIDE)
def test_the_internet_is(number: str) -> None:
    assert is_allowed(ip_address(number))


@pytest.mark.parametrize(
    ("number", "listed", "allowed"),
    [
        ("10.1.2.3", "10.1.0.0/16", True),
        ("10.2.2.3", "10.1.0.0/16", False),
        ("::ffff:10.1.2.3", "10.1.0.0/16", True),
        ("fd00::5", "fd00::/64", True),
        ("127.0.0.1", "fd00::/64", False),
    ],
)
def test_a_listed_network_is_allowed_and_no_other(number: str, listed: str, allowed: bool) -> None:
    assert is_allowed(ip_address(number), [ip_network(listed)]) is allowed


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"]
)
def test_other_ways_to_write_this_machine_are_seen_through(host: str) -> None:
    with pytest.raises(IpAddressRefused, match="inside a network"):
        resolve(host, 80)


def test_a_name_with_a_private_address_beside_a_public_one_is_refused(monkeypatch: Any) -> None:
    def both(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("8.8.8.8", 80)), (2, 1, 6, "", ("10.0.0.1", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with pytest.raises(IpAddressRefused):
        resolve("two-faced.example", 80)


# ---- when ----


def preferences(**chosen: Any) -> Preferences:
    zone = chosen.pop("time_zone", "Europe/Berlin")
    return Preferences(user=User(time_zone=zone), **chosen)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NIGHT = {"quiet_from": time(22), "quiet_until": time(7)}


@pytest.mark.parametrize(
    ("moment", "sent"),
    [
        ("2026-01-10T12:00", "2026-01-10T12:00"),  # at noon at once
        ("2026-01-10T20:59", "2026-01-10T20:59"),  # 21:59 there: just before
        ("2026-01-10T21:00", "2026-01-11T06:00"),  # 22:00 there, until 7:00 of the next day
        ("2026-01-11T02:00", "2026-01-11T06:00"),  # after midnight: until 7:00 of the same day
        ("2026-01-11T06:00", "2026-01-11T06:00"),  # 7:00 there: over
        ("2026-03-28T22:00", "2026-03-29T05:00"),  # clocks go forward in that night
        ("2026-10-24T21:00", "2026-10-25T06:00"),  # clocks go back in that night
    ],
)
def test_quiet_hours_hold_across_midnight_and_changes_of_the_clock(moment: str, sent: str) -> None:
    assert after_quiet_hours(at(moment), preferences(**NIGHT)) == at(sent)


def test_quiet_hours_that_end_in_the_hour_that_comes_twice_end_soon() -> None:
    """2:15 for the second time, quiet until 2:30: a quarter of an hour, not a day."""
    wanted = preferences(quiet_from=time(22), quiet_until=time(2, 30))
    assert after_quiet_hours(at("2026-10-25T01:15"), wanted) == at("2026-10-25T01:30")


@pytest.mark.parametrize("moment", ["2026-03-28T23:00", "2026-03-29T00:15", "2026-03-29T00:45"])
def test_quiet_hours_that_end_in_the_hour_that_is_left_out_end_that_night_and_not_before(moment: str) -> None:
    """Clocks go from 2:00 to 3:00; 1:30 there is still in the hours that end at 2:30."""
    wanted = preferences(quiet_from=time(22), quiet_until=time(2, 30))
    ended = after_quiet_hours(at(moment), wanted)
    assert at("2026-03-29T01:00") <= ended <= at("2026-03-29T01:30")
    assert after_quiet_hours(ended, wanted) == ended


def test_quiet_hours_within_a_day() -> None:
    lunch = preferences(quiet_from=time(12), quiet_until=time(13), time_zone="UTC")
    assert after_quiet_hours(at("2026-01-10T12:30"), lunch) == at("2026-01-10T13:00")
    assert after_quiet_hours(at("2026-01-10T11:30"), lunch) == at("2026-01-10T11:30")


def test_equal_ends_are_no_quiet_hours_and_a_forgotten_zone_is_utc() -> None:
    same = preferences(quiet_from=time(7), quiet_until=time(7))
    lost = preferences(**{**NIGHT, "time_zone": "Nowhere/Lost"})
    assert after_quiet_hours(at("2026-01-10T07:00"), same) == at("2026-01-10T07:00")
    assert after_quiet_hours(at("2026-01-10T23:00"), lost) == at("2026-01-11T07:00")


def test_digests_come_at_the_full_hour_or_once_a_day_and_respect_quiet_hours() -> None:
    moment = at("2026-01-10T09:20")
    hourly = preferences(digest=Digest.HOURLY)
    daily = preferences(digest=Digest.DAILY, digest_at=time(8, 30))
    early = preferences(digest=Digest.DAILY, digest_at=time(6), **NIGHT)
    kolkata = preferences(digest=Digest.HOURLY, time_zone="Asia/Kolkata")
    assert when_due(moment, hourly, digest=True) == at("2026-01-10T10:00")
    assert when_due(moment, kolkata, digest=True) == at("2026-01-10T09:30")  # 15:00 there
    assert when_due(moment, hourly, digest=False) == moment
    assert when_due(moment, daily, digest=True) == at("2026-01-11T07:30")
    assert when_due(moment, early, digest=True) == at("2026-01-11T06:00")


def test_attempts_are_further_and_further_apart_but_never_more_than_hours() -> None:
    waits = [retry_delay(attempt) for attempt in range(1, MAX_ATTEMPTS + 1)]
    assert timedelta(seconds=10) < waits[0] < timedelta(minutes=1)
    assert all(wait < timedelta(hours=8) for wait in waits)
    assert waits[1] > waits[0]


# ---- words ----


def test_a_line_is_one_line_whatever_it_was() -> None:
    hostile = "Approve?\r\nBcc: all@example.org\x00\u2028\u202e evil\u200b"
    said = one_line(hostile, 200)
    assert said == "Approve? Bcc: all@example.org ⟨U+202E⟩ evil"
    assert len(one_line("x" * 10_000, 50)) == 50
    assert to_lines("one\n\ntwo\rthree", 100) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("hostile", "gone"),
    [
        ("@channel @everyone @here", ("@channel", "@everyone", "@here")),
        ("<!channel> <@U123> <http://evil.example|click>", ("<!", "<@", "<http")),
        ("[click](http://evil.example)", ("](", "http://", "evil.example")),
        ("**bold** `code` ~gone~ |spoiler|", ("**", "`c", "~g", "||")),
        ("# heading", ("# ",)),
    ],
)
def test_chat_gets_no_mention_no_link_and_no_markup(hostile: str, gone: tuple[str, ...]) -> None:
    said = neutralise_markup(hostile)
    assert not [part for part in gone if part in said]


@pytest.mark.parametrize(
    "option", ["template=/etc/passwd", "attach=file:///etc/passwd", "verify=no", "+Host=x"]
)
def test_options_of_chat_addresses_that_reach_further_are_refused(option: str) -> None:
    assert "not allowed" in option_error(f"slack://a/b/c/?{option}")
    assert option_error("ntfys://ntfy.example.org/topic?priority=high") == ""


def test_the_signature_is_what_the_readme_says() -> None:
    body = b'{"event": "question"}'
    expected = hmac.new(b"secret", b"1700000000." + body, hashlib.sha256).hexdigest()
    assert signature("secret", body, at=1_700_000_000) == f"t=1700000000,v1={expected}"

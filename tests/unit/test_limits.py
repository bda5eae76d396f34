"""P8: what is said of a usage limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tasks_app.services.wait_sentences import reset_words

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (timedelta(minutes=12), "It resets at 2026-03-01 12:12 UTC, in 12 min."),
        (timedelta(hours=8), "It resets at 2026-03-01 20:00 UTC, in 8 h 0 min."),
        (
            timedelta(hours=8, minutes=1),
            "It resets at 2026-03-01 20:01 UTC, in 8 h 1 min. That is more than 8 hours away.",
        ),
        (timedelta(hours=-1), "It resets at 2026-03-01 11:00 UTC, which has passed."),
    ],
)
def test_a_reset_is_named_with_its_distance(away: timedelta, words: str) -> None:
    assert reset_words(NOW + away, now=NOW) == words


def test_a_limit_of_unknown_length_promises_nothing() -> None:
    assert reset_words(None, now=NOW) == ""

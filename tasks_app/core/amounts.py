"""Times, durations, numbers of things, and amounts of money as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration_in_words(seconds: float | None) -> str:
    """Return the two largest units of the whole seconds: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return ""
    left = max(0, whole_seconds(seconds))
    parts = []
    for size, name in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def whole_seconds(seconds: float) -> int:
    """Return the seconds that are over. Rounded down, parts never sum up to more than their whole."""
    return int(round(seconds, 3))


def moment_in_words(at: datetime) -> str:
    """Return a time as all sentences have it: `2026-03-01 14:05 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def dollars(amount: float) -> str:
    """Format dollars with two digits: `$0.00`, `<$0.01`, `$0.14`, `$1,250.00`."""
    return "<$0.01" if 0 < amount < 0.005 else f"${amount:,.2f}"


def counted(number: int, noun: str, *, ending: str = "s") -> str:
    """Return the number with the noun: `1 task`, `2,000 tasks`. `ending` is that of its plural."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{ending}"

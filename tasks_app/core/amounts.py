"""Durations, numbers of things, and amounts of money as people read them."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration_in_words(seconds: float | None) -> str:
    """Return the two largest units: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return ""
    left = max(0, round(seconds))
    parts = []
    for size, name in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def dollars(amount: float) -> str:
    """Format dollars with two digits: `$0.00`, `<$0.01`, `$0.14`, `$1,250.00`."""
    return "<$0.01" if 0 < amount < 0.005 else f"${amount:,.2f}"


def counted(number: int, noun: str) -> str:
    """Return the number with the noun: `1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

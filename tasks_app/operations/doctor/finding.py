"""What a check found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line for people: what was looked at, how it is, and what to do if it is not as it should be.

    `mend` does that where it is safe; it returns what it did, and raises OSError or a named error.
    """

    subject: str
    level: Level
    text: str
    advice: str = ""
    mend: Callable[[], str] | None = None


def ok(subject: str, text: str, advice: str = "") -> Finding:
    """As it should be; `advice` says what would be better still."""
    return Finding(subject, Level.OK, text, advice)


def warning(subject: str, text: str, advice: str = "", *, mend: Callable[[], str] | None = None) -> Finding:
    """Something works less well, or will not work later."""
    return Finding(subject, Level.WARNING, text, advice, mend)


def problem(subject: str, text: str, advice: str = "", *, mend: Callable[[], str] | None = None) -> Finding:
    """Something that is needed does not work, or somebody gets at what is not theirs."""
    return Finding(subject, Level.PROBLEM, text, advice, mend)

"""`doctor`: check everything that an installation needs, and say what to do.

A check is a function that yields findings. It changes nothing and has timeouts; exceptions become findings. A
finding that can safely be repaired has a `fix`.
"""

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
    """One result of a check: what was checked, its state, and what to do.

    `fix` does that if it is safe, and returns what it did. It raises OSError or CatHerderError.
    """

    subject: str
    level: Level
    text: str
    advice: str = ""
    fix: Callable[[], str] | None = None


def ok(subject: str, text: str, advice: str = "") -> Finding:
    """Return a finding without a problem; `advice` may suggest an improvement."""
    return Finding(subject, Level.OK, text, advice)


def warning(subject: str, text: str, advice: str = "") -> Finding:
    """Return a finding of something that works badly or may fail later."""
    return Finding(subject, Level.WARNING, text, advice)


def problem(subject: str, text: str, advice: str = "", *, fix: Callable[[], str] | None = None) -> Finding:
    """Return a finding of something that does not work or is insecure."""
    return Finding(subject, Level.PROBLEM, text, advice, fix)

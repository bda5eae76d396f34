"""What the agent tells the portal with its commands during a run, other than questions and replies.

`cat-herder unfit D-17 "why"`: a decision does not fit. `cat-herder not-done "why"`: the task cannot be done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.agent.spool import Spooled, SpooledDocument, clear_folder, read_spool

FOLDER = "said"
_MAX_DOCUMENTS = 100
_MAX_CHARACTERS = 5_000


@dataclass(frozen=True)
class UnfitDecision:
    """The number of a decision and why it does not fit."""

    number: int
    why: str


@dataclass(frozen=True)
class NotDone:
    """Why the agent cannot do its task."""

    why: str


Said = UnfitDecision | NotDone


def said_folder(home: Path) -> Path:
    return home / FOLDER


def clear_said(home: Path) -> None:
    """Empty the folder for the next run. What it held must be stored in the database by then."""
    clear_folder(home, FOLDER)


def spooled_said(home: Path, *, known: Collection[str] = ()) -> Spooled[Said]:
    """Return what the agent said and is not `known`; it stays until `clear_said`."""
    return read_spool(home, FOLDER, _read_said, limit=_MAX_DOCUMENTS, known=known)


def _read_said(document: SpooledDocument) -> Iterator[Said]:
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        why = str(document.content["why"]).strip()[:_MAX_CHARACTERS]
        if why and "decision" not in document.content:
            yield NotDone(why)
        elif why and 0 < (number := int(document.content["decision"])) < 2**31:
            yield UnfitDecision(number, why)

"""The unfit spool: decisions that do not fit, as the agent says with `cat-herder unfit D-17 "why"`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.agent.spool import Spooled, SpooledDocument, clear_folder, read_spool

FOLDER = "unfit"
_MAX_DOCUMENTS = 100
_MAX_CHARACTERS = 5_000


@dataclass(frozen=True)
class UnfitDecision:
    """The number of a decision and why it does not fit."""

    number: int
    why: str


def unfit_folder(home: Path) -> Path:
    return home / FOLDER


def clear_unfit(home: Path) -> None:
    """Empty the folder for the next run. What it held must be stored in the database by then."""
    clear_folder(home, FOLDER)


def spooled_unfit(home: Path, *, known: Collection[str] = ()) -> Spooled[UnfitDecision]:
    """Return what the agent said and is not `known`; it stays until `clear_unfit`."""
    return read_spool(home, FOLDER, _read_unfit, limit=_MAX_DOCUMENTS, known=known)


def _read_unfit(document: SpooledDocument) -> Iterator[UnfitDecision]:
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        number, why = int(document.content["decision"]), str(document.content["why"]).strip()
        if 0 < number < 2**31 and why:
            yield UnfitDecision(number, why[:_MAX_CHARACTERS])

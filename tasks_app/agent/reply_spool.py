"""The reply spool: what the agent replied to threads of a review with `cat-herder reply N "…"`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.agent.spool import Spooled, SpooledDocument, clear_folder, read_spool

FOLDER = "replies"
_MAX_REPLIES = 1_000
_MAX_CHARACTERS = 20_000


@dataclass(frozen=True)
class SpooledReply:
    """A reply to the thread of this number; `key` tells it apart from others."""

    number: int
    text: str
    key: str


def reply_folder(home: Path) -> Path:
    return home / FOLDER


def clear_replies(home: Path) -> None:
    """Empty the folder for the next run. Earlier replies must be stored in the database by then."""
    clear_folder(home, FOLDER)


def spooled_replies(home: Path, *, known: Collection[str] = ()) -> Spooled[SpooledReply]:
    """Return the replies that are not `known`; they stay until `clear_replies`."""
    return read_spool(home, FOLDER, _read_reply, limit=_MAX_REPLIES, known=known)


def _read_reply(document: SpooledDocument) -> Iterator[SpooledReply]:
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        number, text = int(document.content["thread"]), str(document.content["text"]).strip()
        if 0 < number < 2**31 and text:
            yield SpooledReply(number, text[:_MAX_CHARACTERS], document.key)

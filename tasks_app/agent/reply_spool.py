"""The reply spool: what the agent replied to threads of a review with `cat-herder reply N "…"`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.agent.spool import SpooledDocument, clear_folder, spooled_documents

FOLDER = "replies"
_MAX_REPLIES = 1_000
_MAX_CHARACTERS = 20_000


@dataclass(frozen=True)
class SpooledReply:
    """A reply to the thread of this number; `key` tells it apart from others."""

    number: int
    text: str
    key: str


@dataclass(frozen=True)
class SpooledReplies:
    """The replies, and the keys of all files that were read, also of those that hold no reply."""

    replies: list[SpooledReply]
    keys: frozenset[str]


def reply_folder(home: Path) -> Path:
    return home / FOLDER


def clear_replies(home: Path) -> None:
    """Empty the folder for the next run. Earlier replies must be stored in the database by then."""
    clear_folder(home, FOLDER)


def spooled_replies(home: Path, *, known: Collection[str] = ()) -> SpooledReplies:
    """Return the replies in the order written; they stay until `clear_replies`.

    Files with a `known` key are not read again: this is called each second, and the agent writes them.
    """
    documents = spooled_documents(home, FOLDER, limit=_MAX_REPLIES, known=known)
    replies = [reply for document in documents for reply in _read_reply(document)]
    return SpooledReplies(replies, frozenset(document.key for document in documents))


def _read_reply(document: SpooledDocument) -> Iterator[SpooledReply]:
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        number, text = int(document.content["thread"]), str(document.content["text"]).strip()
        if 0 < number < 2**31 and text:
            yield SpooledReply(number, text[:_MAX_CHARACTERS], document.key)

"""Folders in which programs of the sandbox leave JSON documents: questions, replies, and what an agent says.

They are in the agent's home, so neither a folder nor its content can be trusted: it is read without following
links.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from tasks_app.core.files import open_file, open_folder
from tasks_app.core.text import storable
from tasks_app.core.types import Ask, AskItem

_MAX_BYTES = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True)
class SpooledDocument:
    """A document with the time at which it was written (ns) and a key that tells it apart.

    `content` is None if the file is too large or no JSON.
    """

    written_at: int
    key: str
    content: Any


@dataclass(frozen=True)
class Spooled(Generic[T]):
    """Contents of a folder, and the keys of all files that were read, unusable ones included."""

    found: list[T]
    keys: frozenset[str]


def read_spool(
    home: Path,
    name: str,
    read: Callable[[SpooledDocument], Iterator[T]],
    *,
    limit: int,
    known: Collection[str],
) -> Spooled[T]:
    """Return what `read` makes of the documents that are not `known`, in the order written.

    This is called each second of a run: the agent writes the files, and they stay until `clear_folder`. At
    most `limit` are read in the whole run, `known` ones included.
    """
    documents = spooled_documents(home, name, limit=limit, known=known)
    found = [one for document in documents for one in read(document)]
    return Spooled(found, frozenset(document.key for document in documents))


def clear_folder(home: Path, name: str) -> None:
    """Empty the folder for the next run. What it held must be stored in the database by then."""
    folder = home / name
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def spooled_documents(
    home: Path, name: str, *, limit: int, known: Collection[str] = ()
) -> list[SpooledDocument]:
    """Return the documents in the order written. They stay until `clear_folder`, so that a crash loses none.

    Those with a `known` key are not read again, and count towards `limit` even if the agent has deleted them.
    """
    documents: list[SpooledDocument] = []
    with suppress(OSError), open_folder(home, name) as folder:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208
        # The agent chose the names: they may hold any bytes, and long ones may differ only at their end.
        keys = ((name, hashlib.sha256(os.fsencode(name)).hexdigest()[:32]) for name in names)
        new = ((name, key) for name, key in keys if key not in known)
        few = islice(new, max(0, limit - len(known)))
        documents = [document for name, key in few for document in _read_document(folder, name, key)]
    return sorted(documents, key=lambda document: document.written_at)


def _read_document(folder: int, name: str, key: str) -> Iterator[SpooledDocument]:
    with suppress(OSError), open_file(folder, name) as file:
        status = os.fstat(file.fileno())
        content = _parsed(file.read(_MAX_BYTES)) if status.st_size <= _MAX_BYTES else None
        yield SpooledDocument(status.st_mtime_ns, key, content)


def _parsed(text: bytes) -> Any:
    """Return the JSON value with texts that databases accept, or None.

    An argument that is no UTF-8 arrives as a lone surrogate. RecursionError: brackets nested a thousand deep.
    """
    with suppress(ValueError, RecursionError):
        return storable(json.loads(text.decode("utf-8")))
    return None


# The ask spool: questions that `cat-herder ask` stored because the run could not be halted.


_ASK_FOLDER = "asked"
_MAX_QUESTIONS = 20


def spool_folder(home: Path) -> Path:
    return home / _ASK_FOLDER


def clear_spool(home: Path) -> None:
    """Empty the folder for the next run. Earlier questions must be stored in the database by then."""
    clear_folder(home, _ASK_FOLDER)


def spooled_asks(home: Path) -> list[Ask]:
    """Return the questions in the order asked. They stay until `clear_spool`, so that a crash loses none."""
    documents = spooled_documents(home, _ASK_FOLDER, limit=10 * _MAX_QUESTIONS)
    return [ask for document in documents for ask in _read_ask(document)][:_MAX_QUESTIONS]


def _read_ask(document: SpooledDocument) -> Iterator[Ask]:
    with suppress(AttributeError, KeyError, TypeError):
        if question := str(document.content["question"]).strip():
            about_goal = document.content.get("about") == "goal"
            yield Ask(f"noted-{document.key}", "command", (AskItem(question),), about_goal=about_goal)


# The reply spool: what the agent replied to threads of a review with `cat-herder reply N "…"`.


_REPLY_FOLDER = "replies"
_MAX_REPLIES = 1_000
_MAX_REPLY = 20_000


@dataclass(frozen=True)
class SpooledReply:
    """A reply to the thread of this number; `key` tells it apart from others."""

    number: int
    text: str
    key: str


def reply_folder(home: Path) -> Path:
    return home / _REPLY_FOLDER


def clear_replies(home: Path) -> None:
    """Empty the folder for the next run. Earlier replies must be stored in the database by then."""
    clear_folder(home, _REPLY_FOLDER)


def spooled_replies(home: Path, *, known: Collection[str] = ()) -> Spooled[SpooledReply]:
    """Return the replies that are not `known`; they stay until `clear_replies`."""
    return read_spool(home, _REPLY_FOLDER, _read_reply, limit=_MAX_REPLIES, known=known)


def _read_reply(document: SpooledDocument) -> Iterator[SpooledReply]:
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        number, text = int(document.content["thread"]), str(document.content["text"]).strip()
        if 0 < number < 2**31 and text:
            yield SpooledReply(number, text[:_MAX_REPLY], document.key)


# What the agent tells the portal with its commands during a run, other than questions and replies.
#
# `cat-herder unfit D-17 "why"`: a decision does not fit. `cat-herder not-done "why"`: the task cannot be
# done.


_SAID_FOLDER = "said"
_MAX_DOCUMENTS = 100
_MAX_SAID = 5_000


@dataclass(frozen=True)
class UnfitDecision:
    """The number of a decision and why it does not fit."""

    number: int
    why: str


@dataclass(frozen=True)
class NotDone:
    """The agent's reason why it cannot do its task."""

    why: str


Said = UnfitDecision | NotDone


def said_folder(home: Path) -> Path:
    return home / _SAID_FOLDER


def clear_said(home: Path) -> None:
    """Empty the folder for the next run. What it held must be stored in the database by then."""
    clear_folder(home, _SAID_FOLDER)


def spooled_said(home: Path, *, known: Collection[str] = ()) -> Spooled[Said]:
    """Return what the agent said and is not `known`; it stays until `clear_said`."""
    return read_spool(home, _SAID_FOLDER, _read_said, limit=_MAX_DOCUMENTS, known=known)


def _read_said(document: SpooledDocument) -> Iterator[Said]:
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        why = str(document.content["why"]).strip()[:_MAX_SAID]
        if why and "decision" not in document.content:
            yield NotDone(why)
        elif why and 0 < (number := int(document.content["decision"])) < 2**31:
            yield UnfitDecision(number, why)

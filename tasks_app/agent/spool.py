"""Reading the folders in which programs of the sandbox leave JSON documents for the portal.

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

from tasks_app.core.nofollow import open_file, open_folder
from tasks_app.core.storable import storable

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
    """What was read from a folder, and the keys of all files that were read, also of unusable ones."""

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
        new = ((name, key) for name in names if (key := _key_of(name)) not in known)
        few = islice(new, max(0, limit - len(known)))
        documents = [document for name, key in few for document in _read_document(folder, name, key)]
    return sorted(documents, key=lambda document: document.written_at)


def _key_of(name: str) -> str:
    # The agent chose the name: it may hold any bytes, and long names may differ only at their end.
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


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

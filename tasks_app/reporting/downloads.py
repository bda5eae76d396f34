"""Answers of any length: made while they are sent, so that nothing of them is kept in memory."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse

from tasks_app.core.errors import WorkspaceError
from tasks_app.history.events.streaming import stream_bytes, stream_text
from tasks_app.models import Sequence, Step, Task, User
from tasks_app.permissions import Principal
from tasks_app.reporting.csv_text import csv_lines
from tasks_app.services.difference import difference_of

#: The forms in which rows can be taken away.
FORMS = ("csv", "json")
#: The media type of a patch.
PATCH = "text/x-diff"
#: Patches that one person can take at once. For each git runs, with all of a large file in its memory, until
#: the last piece of it is read.
PATCHES = 4
_taken: Counter[int] = Counter()
_lock = threading.Lock()


def download(pieces: Iterator[str], *, name: str, kind: str) -> StreamingHttpResponse:
    """A file of this name; `kind` is its media type."""
    return _file(stream_text(pieces), name=name, kind=f"{kind}; charset=utf-8")


def download_patch(what: Task | Step | Sequence, *, by: Principal) -> StreamingHttpResponse:
    """What it changed, for `git apply`. Without a charset: each file of a repository has its own.

    Raises WorkspaceError if there is nothing to compare yet, if a commit is gone, or if the person takes
    `PATCHES` already.
    """
    difference = difference_of(what)
    if difference is None:
        raise WorkspaceError("There is nothing to compare yet.")
    _take(by.user)
    pieces = _given_back(by.user, difference.patch)
    next(pieces)
    return _file(stream_bytes(pieces), name=f"{_name(what)}.patch", kind=PATCH)


def _take(person: User) -> None:
    with _lock:
        if _taken[person.pk] >= PATCHES:
            raise WorkspaceError(f"You are taking {PATCHES} patches at once. Wait for one of them to end.")
        _taken[person.pk] += 1


def _given_back(person: User, patch: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Begins with a piece that is none: what has begun ends in any case, also if nobody reads on."""
    try:
        pieces = patch()
        yield b""
        yield from pieces
    finally:
        with _lock:
            _taken[person.pk] -= 1


def _name(what: Task | Step | Sequence) -> str:
    if isinstance(what, Step):
        return f"task-{what.task_id}-step-{what.position}"
    return f"{what._meta.model_name}-{what.pk}"


def _file(pieces: AsyncIterator[Any], *, name: str, kind: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(pieces, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def table(
    columns: list[str], rows: Iterable[dict[str, Any]], *, name: str, form: str
) -> StreamingHttpResponse:
    """Rows as a file, `csv` with a header or `json` as one array."""
    if form == "csv":
        lines = csv_lines(columns, ([row[column] for column in columns] for row in rows))
        return download(lines, name=f"{name}.csv", kind="text/csv")
    return download(_as_json(rows), name=f"{name}.json", kind="application/json")


def _as_json(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield "["
    for number, row in enumerate(rows):
        yield f"{',' if number else ''}\n{json.dumps(row, default=_plain, ensure_ascii=False)}"
    yield "\n]\n"


def _plain(value: Any) -> str:
    return str(value.isoformat())

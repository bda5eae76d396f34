"""Streamed responses of any length, which are never held in memory as a whole."""

from __future__ import annotations

import csv
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

from tasks_app.core.errors import WorkspaceError
from tasks_app.history.audit import record_once_an_hour
from tasks_app.models import Action, Project, Sequence, Step, Task, User
from tasks_app.permissions import Principal
from tasks_app.services.difference import Difference, difference_of

#: Formats of exported rows.
FORMATS = ("csv", "json")
#: The media type of a patch.
PATCH_TYPE = "text/x-diff"
#: Patches that one user can download at once. Each needs a git process, which may hold a large file in
#: memory, until its last piece is read.
MAX_PATCHES = 4
_running: Counter[int] = Counter()
_lock = threading.Lock()


def record_download(name: str, *, by: Principal, of: Task | Step | Sequence) -> None:
    """Record that somebody took a log, a plan or a patch away, once an hour for each file."""
    task = of.task if isinstance(of, Step) else of if isinstance(of, Task) else None
    record_once_an_hour(Action.DOWNLOADED, by=by.user, subject=name, task=task, project=_project_of(of))


def _project_of(what: Task | Step | Sequence) -> Project:
    return what.task.project if isinstance(what, Step) else what.project


def download(pieces: Iterator[str], *, name: str, kind: str) -> StreamingHttpResponse:
    """Return a file with this name; `kind` is its media type."""
    return _attachment(stream_text(pieces), name=name, content_type=f"{kind}; charset=utf-8")


def download_patch(what: Task | Step | Sequence, *, by: Principal) -> StreamingHttpResponse:
    """Return its changes for `git apply`. Raises as download_difference does."""
    response = download_difference(difference_of(what), name=_file_stem(what), by=by)
    try:
        record_download(f"{_file_stem(what)}.patch", by=by, of=what)
    except BaseException:
        response.close()  # it would keep the user's place
        raise
    return response


def download_difference(difference: Difference | None, *, name: str, by: Principal) -> StreamingHttpResponse:
    """Return a difference for `git apply`, without a charset, because files can have different ones.

    Raises WorkspaceError if there is nothing to compare yet, if a commit is gone, or if the user already
    downloads `MAX_PATCHES`.
    """
    if difference is None:
        raise WorkspaceError("There is nothing to compare yet.")
    _count_download(by.user)
    pieces = _uncount_at_end(by.user, difference.patch)
    next(pieces)
    return _attachment(stream_bytes(pieces), name=f"{name}.patch", content_type=PATCH_TYPE)


def _count_download(user: User) -> None:
    with _lock:
        if _running[user.pk] >= MAX_PATCHES:
            raise WorkspaceError(
                f"You are already downloading {MAX_PATCHES} patches. Wait for one of them to end."
            )
        _running[user.pk] += 1


def _uncount_at_end(user: User, patch: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield an empty piece first: only a started generator runs `finally` if nobody reads on."""
    try:
        pieces = patch()
        yield b""
        yield from pieces
    finally:
        with _lock:
            _running[user.pk] -= 1


def _file_stem(what: Task | Step | Sequence) -> str:
    if isinstance(what, Step):
        return f"task-{what.task_id}-step-{what.position}"
    return f"{what._meta.model_name}-{what.pk}"


def _attachment(pieces: AsyncIterator[Any], *, name: str, content_type: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(pieces, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def export_rows(
    columns: list[str], rows: Iterable[dict[str, Any]], *, name: str, file_format: str
) -> StreamingHttpResponse:
    """Return rows as a file: `csv` with a header, or `json` as one array."""
    if file_format == "csv":
        lines = csv_lines(columns, ([row[column] for column in columns] for row in rows))
        return download(lines, name=f"{name}.csv", kind="text/csv")
    return download(_json_lines(rows), name=f"{name}.json", kind="application/json")


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield "["
    for number, row in enumerate(rows):
        yield f"{',' if number else ''}\n{json.dumps(row, default=datetime.isoformat, ensure_ascii=False)}"
    yield "\n]\n"


#: Characters (also full-width ones) at which spreadsheets begin a formula, which could send data out. An
#: apostrophe before them prevents it.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Echo:
    """A file whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


def csv_lines(columns: list[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield the header and a line for each row. Times are ISO 8601, objects JSON, None is empty."""
    yield csv.writer(_Echo()).writerow(columns)
    # Quote all texts: where spreadsheets separate cells with semicolons, a text may contain one.
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


#: Pieces of a log, about a line each, that are sent together.
PIECES = 200


async def stream_text(pieces: Iterator[str]) -> AsyncIterator[str]:
    """Yield texts, some pieces at a time."""
    while part := await sync_to_async(lambda: "".join(islice(pieces, PIECES)))():
        yield part


async def stream_bytes(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield bytes, one piece at a time."""
    while part := await sync_to_async(lambda: next(pieces, b""))():
        yield part

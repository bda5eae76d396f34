"""Answers of any length: made while they are sent, so that nothing of them is kept in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse

from tasks_app.csv_text import csv_lines
from tasks_app.difference import difference_of
from tasks_app.errors import WorkspaceError
from tasks_app.events.streaming import streamed, streamed_bytes
from tasks_app.models import Sequence, Step, Task

#: The forms in which rows can be taken away.
FORMS = ("csv", "json")
#: The media type of a patch.
PATCH = "text/x-diff"


def download(pieces: Iterator[str], *, name: str, kind: str) -> StreamingHttpResponse:
    """A file of this name; `kind` is its media type."""
    return _file(streamed(pieces), name=name, kind=f"{kind}; charset=utf-8")


def download_patch(what: Task | Step | Sequence) -> StreamingHttpResponse:
    """What it changed, for `git apply`. Without a charset: each file of a repository has its own.

    Raises WorkspaceError if there is nothing to compare yet, or if a commit is gone.
    """
    difference = difference_of(what)
    if difference is None:
        raise WorkspaceError("There is nothing to compare yet.")
    return _file(streamed_bytes(difference.patch()), name=f"{_name(what)}.patch", kind=PATCH)


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

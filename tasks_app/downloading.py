"""Answers of any length: made while they are sent, so that nothing of them is kept in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.http import StreamingHttpResponse

from tasks_app.csv_text import csv_lines
from tasks_app.events.streaming import streamed

#: The forms in which rows can be taken away.
FORMS = ("csv", "json")


def download(pieces: Iterator[str], *, name: str, kind: str) -> StreamingHttpResponse:
    """A file of this name; `kind` is its media type."""
    response = StreamingHttpResponse(streamed(pieces), content_type=f"{kind}; charset=utf-8")
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

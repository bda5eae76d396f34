"""Rows as CSV, line by line, in a form that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

#: With these a spreadsheet begins a formula, which could call out; an apostrophe before them stops it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Line:
    """A file that hands back what was written to it."""

    def write(self, text: str) -> str:
        return text


def csv_lines(columns: list[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """The header and then a line for each row. Times are ISO 8601, objects JSON, None is empty."""
    writer = csv.writer(_Line())
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text

"""Rows as CSV, line by line, in a form that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

#: With these a spreadsheet begins a formula, which could call out; an apostrophe before them stops it. Some
#: take wide letters too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Line:
    """A file that hands back what was written to it."""

    def write(self, text: str) -> str:
        return text


def csv_lines(columns: list[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """The header and then a line for each row. Times are ISO 8601, objects JSON, None is empty."""
    yield csv.writer(_Line()).writerow(columns)
    # All texts in quotes: where cells end at semicolons, one in a text would begin another cell.
    writer = csv.writer(_Line(), quoting=csv.QUOTE_NONNUMERIC)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text

"""CSV line by line, with cells that spreadsheets do not take for formulas."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

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

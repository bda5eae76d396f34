"""Bytes of each row in the large tables, as docs/scaling.md shows them: `python -m tests.bench.sizes`.

With `--database URL` of PostgreSQL, or with `--data-dir FOLDER` of an installation on SQLite. What is free in
the pages of a table or an index counts, as it does on the disk.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.models import Model


@dataclass(frozen=True)
class Size:
    """A table: its rows, the bytes of its pages, and those with its indexes and long values."""

    name: str
    rows: int
    table: int
    whole: int

    @property
    def line(self) -> str:
        """A row of the table in docs/scaling.md."""
        each, alone = (round(size / self.rows) if self.rows else 0 for size in (self.whole, self.table))
        return f"| {self.name} | {self.rows:,} | {each:,} ({alone:,} without indexes) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--database", help="the URL of a PostgreSQL database")
    place.add_argument("--data-dir", help="the data directory of an installation on SQLite")
    chosen = parser.parse_args()
    if chosen.database:
        os.environ["DATABASE_URL"] = chosen.database
    else:
        os.environ.pop("DATABASE_URL", None)
        os.environ["CATHERDER_DATA_DIR"] = chosen.data_dir
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
    import django

    django.setup()
    for line in lines():
        print(line)


def lines() -> Iterator[str]:
    """Yield the table, the largest first, and the size of the whole database."""
    yield "| Of | rows | bytes for each, with its indexes |"
    yield "| --- | --- | --- |"
    for size in sorted(map(size_of, measured_models()), key=lambda one: -one.whole):
        if size.rows:
            yield size.line
    yield f"The database has {whole_size() / 1e9:.2f} GB."


def measured_models() -> list[type[Model]]:
    from tasks_app.models import (
        DayFigures,
        Decision,
        DecisionEvent,
        Event,
        IndexedAnswer,
        ModelUsage,
        PersonUsage,
        Question,
        Run,
        Step,
        Task,
        Transition,
    )

    of_work: list[type[Model]] = [Event, Question, IndexedAnswer, Run, Task, Step, Transition]
    return [*of_work, Decision, DecisionEvent, ModelUsage, PersonUsage, DayFigures]


def size_of(model: type[Model]) -> Size:
    from django.db import connection

    sizes = _postgres_sizes if connection.vendor == "postgresql" else _sqlite_sizes
    name = str(model._meta.verbose_name_plural)
    return Size(name, model._default_manager.count(), *sizes(model._meta.db_table))


def whole_size() -> int:
    from django.db import connection

    on_postgres = connection.vendor == "postgresql"
    asked = "pg_database_size(current_database())" if on_postgres else "sum(pgsize) FROM dbstat"
    return _number(f"SELECT {asked}")


def _postgres_sizes(table: str) -> tuple[int, int]:
    """Return the bytes of the table with its long values (TOAST), and of all that belongs to it."""
    alone, whole = "SELECT pg_table_size(%s)", "SELECT pg_total_relation_size(%s)"
    return _number(alone, table), _number(whole, table)


#: The indexes of words are tables of their own on SQLite.
_WORDS = {
    "tasks_app_task": "search_tasks",
    "tasks_app_question": "search_questions",
    "tasks_app_indexedanswer": "search_answers",
}


def _sqlite_sizes(table: str) -> tuple[int, int]:
    """Return the bytes of the table, and of all that belongs to it."""
    own = _number("SELECT sum(pgsize) FROM dbstat WHERE name = %s", table)
    indexes = "SELECT name FROM sqlite_master WHERE tbl_name = %s AND type = 'index'"
    of_indexes = _number(f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({indexes})", table)  # noqa: S608
    words = _WORDS.get(table, "none")
    return own, own + of_indexes + _number("SELECT sum(pgsize) FROM dbstat WHERE name GLOB %s", f"{words}_*")


def _number(statement: str, *parameters: str) -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.fetchone()[0] or 0)


if __name__ == "__main__":
    main()

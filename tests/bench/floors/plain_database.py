"""A portal's database by its driver alone, without Django: the floors of what is stored and read.

It imports nothing of Django, because the bare application imports it, whose memory is measured.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

#: Seconds until a transaction asks again for the lock of another writer, and until it gives up.
_ASK_AGAIN, _SECONDS_FOR_THE_LOCK = 0.002, 20
#: Makes a run to which nobody else appends events.
RUN = """
import uuid
project = Project.objects.create(name="plain", source="/nowhere", branch="main")
task = Task.objects.create(project=project, slug="plain", title="Plain", pipeline="default")
step = Step.objects.create(task=task, position=1, name="only", config={})
run = Run.objects.create(step=step, number=1, reason="first", session_id=uuid.uuid4())
result = [task.pk, run.pk]
"""


@dataclass(frozen=True)
class Rows:
    """Rows for one table."""

    table: str
    columns: Sequence[str]
    values: Sequence[Sequence[Any]]

    def statement(self, placeholder: str) -> str:
        places = ", ".join([placeholder] * len(self.columns))
        return f"INSERT INTO {self.table} ({', '.join(self.columns)}) VALUES ({places})"  # noqa: S608


def changes(task: int, count: int = 1) -> Rows:
    """Return rows that say that something of the task changed."""
    return Rows("tasks_app_change", ("task_id", "kind", "at"), [(task, "events", _now())] * count)


def events(run: int, numbers: Sequence[int], payload: str, raw: str | None) -> Rows:
    """Return events of the run with these numbers; `payload` and `raw` are JSON."""
    columns, at = ("run_id", "seq", "kind", "at", "payload", "raw"), _now()
    return Rows("tasks_app_event", columns, [(run, seq, "text", at, payload, raw) for seq in numbers])


def _now() -> str:
    """As Django stores times in SQLite; PostgreSQL reads it as a time in UTC."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"


class PlainDatabase:
    """A connection with the portal's settings for durability: what it commits survives a power cut."""

    def __init__(self, url: str) -> None:
        self._on_postgres = url.startswith("postgres")
        self._connection: Any = _postgres(url) if self._on_postgres else _sqlite(url)

    def close(self) -> None:
        self._connection.close()

    def insert(self, *several: Rows) -> None:
        """Insert all these rows in one transaction."""
        with self._transaction(), closing(self._connection.cursor()) as cursor:
            for rows in several:
                cursor.executemany(rows.statement("%s" if self._on_postgres else "?"), rows.values)

    def add_functions(self) -> None:
        """Add what statements of Django call, as its own connections do: SQLite lacks some functions."""
        from django.db.backends.sqlite3._functions import register  # type: ignore[import-untyped]

        if not self._on_postgres:
            register(self._connection)

    def read(self, statements: Sequence[str]) -> int:
        """Execute them, and fetch their rows; return how many there were."""
        with closing(self._connection.cursor()) as cursor:
            return sum(len(cursor.execute(statement).fetchall()) for statement in statements)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._on_postgres:
            with self._connection.transaction():
                yield
            return
        self._begin()
        with self._connection:  # commits, or rolls back after an exception
            yield

    def _begin(self) -> None:
        """Ask for SQLite's lock each 2 ms, as the portal's connections do."""
        give_up = time.monotonic() + _SECONDS_FOR_THE_LOCK
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(_ASK_AGAIN)


def _postgres(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC")


def _sqlite(url: str) -> sqlite3.Connection:
    file = Path(url.removeprefix("sqlite:///"))
    connection = sqlite3.connect(file, isolation_level=None, timeout=0)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


@dataclass(frozen=True)
class Written:
    """How many events were written, in how many seconds and seconds of CPU time."""

    events: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def cpu_ms_per_thousand(self) -> float:
        return self.cpu_seconds / self.events * 1_000_000


class PlainWriter:
    """Writes the rows that the portal writes for events of a run: `batch` events and a change at a time."""

    def __init__(
        self, database: PlainDatabase, *, task: int, run: int, batch: int, payload: object, raw: object = None
    ) -> None:
        self._database = database
        self._task, self._run, self._batch = task, run, batch
        self._payload = json.dumps(payload)
        self._raw = None if raw is None else json.dumps(raw)
        self._seq = 1

    def write(self, seconds: float) -> Written:
        """Write all that the database takes for so many seconds."""
        first, began, cpu = self._seq, time.monotonic(), time.thread_time()
        while (took := time.monotonic() - began) < seconds:
            self._database.insert(self._next_events(), changes(self._task))
        return Written(self._seq - first, took, time.thread_time() - cpu)

    def _next_events(self) -> Rows:
        numbers = range(self._seq, self._seq + self._batch)
        self._seq += self._batch
        return events(self._run, numbers, self._payload, self._raw)

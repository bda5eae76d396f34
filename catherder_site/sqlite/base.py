"""An SQLite connection that the next thread takes over, and that waits its turn to write.

One connection at a time may write. SQLite's own way of waiting asks again after 1 ms, 2 ms and so on, in the
end each 100 ms, while those that have just written ask at once: under many writers some wait for seconds and
others never. Here everybody asks each 2 ms. docs/performance.md has the figures.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.db.backends.sqlite3 import base
from django.db.backends.sqlite3.schema import DatabaseSchemaEditor as DjangoSchemaEditor
from django.db.models import Model

from catherder_site.kept_connections import KeepsConnections, KeptConnections

#: Seconds until a connection asks again for a lock that another one has.
ASK_AGAIN = 0.002
#: Seconds after which it gives up, unless the settings say another `timeout`: that of Python's own module.
_USUAL_TIMEOUT = 5.0


class DatabaseSchemaEditor(DjangoSchemaEditor):
    """A schema editor under which a table keeps its triggers.

    SQLite can change little of a table, so Django makes another one, with the rows, and drops the old one.
    Triggers of other tables that name it would forbid that.
    """

    def _remake_table(self, model: type[Model], *args: Any, **kwargs: Any) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND instr(sql, %s)",
                [model._meta.db_table],
            )
            triggers = cursor.fetchall()
        for name, _ in triggers:
            self.execute(f"DROP TRIGGER {name}")
        super()._remake_table(model, *args, **kwargs)  # type: ignore[misc]
        for _, trigger in triggers:
            self.execute(trigger, params=None)


class DatabaseWrapper(KeepsConnections, base.DatabaseWrapper):
    """Django's wrapper, whose connections are kept, each for the file that it has open.

    `timeout` in its options is how many seconds a statement waits for a lock.
    """

    SchemaEditorClass = DatabaseSchemaEditor
    kept = KeptConnections()

    def get_new_connection(self, conn_params: dict[str, Any]) -> sqlite3.Connection:
        connection: sqlite3.Connection = super().get_new_connection(conn_params)
        connection.execute("PRAGMA busy_timeout = 0")  # `WaitingCursor` waits instead
        return connection

    def create_cursor(self, name: str | None = None) -> WaitingCursor:
        cursor: WaitingCursor = self.connection.cursor(factory=WaitingCursor)
        cursor.timeout = self.settings_dict["OPTIONS"].get("timeout", _USUAL_TIMEOUT)
        return cursor

    def key_of_database(self) -> Hashable:
        if self.is_in_memory_db():
            return None
        try:
            status = Path(str(self.settings_dict["NAME"])).stat()
        except OSError:
            return None
        return super().key_of_database(), status.st_dev, status.st_ino

    def is_at_rest(self, connection: sqlite3.Connection) -> bool:
        with suppress(sqlite3.Error):
            connection.rollback()
            return not connection.in_transaction
        return False

    def is_alive(self, connection: sqlite3.Connection) -> bool:
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA foreign_keys = ON")  # a migration may have switched them off
            return True
        return False


class WaitingCursor(base.SQLiteCursorWrapper):
    """A cursor whose statements wait for the lock that they need; they raise OperationalError in the end."""

    timeout = _USUAL_TIMEOUT

    def execute(self, query: str, params: Any = None) -> Any:
        return self._wait(partial(super().execute, query, params))

    def executemany(self, query: str, param_list: Iterable[Any]) -> Any:
        return self._wait(partial(super().executemany, query, list(param_list)))

    def _wait(self, statement: Callable[[], object]) -> object:
        give_up = 0.0
        while True:
            try:
                return statement()
            except sqlite3.OperationalError as error:
                # As in SQLite, nobody waits within a transaction: what it has read may be outdated by then.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or self.connection.in_transaction:
                    raise
                now = time.monotonic()
                give_up = give_up or now + self.timeout
                if now >= give_up:
                    raise
                time.sleep(ASK_AGAIN)

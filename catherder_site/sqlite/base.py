"""An SQLite connection that the next thread takes over."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from django.db.backends.sqlite3 import base

from catherder_site.kept_connections import KeepsConnections, KeptConnections


class DatabaseWrapper(KeepsConnections, base.DatabaseWrapper):
    """Django's wrapper, whose connections are kept, each for the file that it has open."""

    kept = KeptConnections()

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

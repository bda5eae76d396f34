"""Database connections that the next thread takes over, instead of opening another one.

Under ASGI each request has a thread of its own, and so have jobs and the worker's rounds; a thread closes
its connection when it ends, so Django's persistent connections are never used a second time. To open one
takes 3 ms with SQLite, which reads the schema and registers 40 functions; PostgreSQL starts a process for it.
Django's pool (psycopg_pool) exists for PostgreSQL only, and starts threads of its own; this serves both.

Only processes that run for long keep connections, and only after `keep_after_close`: a command that exchanges
the database's file must not have the old one open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from typing import Any, ClassVar

#: Connections that wait for the next thread, for each database. With SQLite each may hold 2 MB of pages.
MOST_KEPT = 4


class KeptConnections:
    """Open connections that no thread uses. A process never uses its parent's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._kept: list[tuple[Hashable, Any]] = []

    def begin(self) -> None:
        """Keep connections of this process from now on."""
        with self._lock:
            # A parent's connections are left alone. To close them would end its session or, with SQLite,
            # drop the locks that this process has on the same file.
            self._process, self._kept = os.getpid(), []

    def end(self) -> None:
        """Keep none from now on, and close those that are kept."""
        self._close_all(keep_for=0)

    def close_all(self) -> None:
        self._close_all(keep_for=self._process)

    def _close_all(self, *, keep_for: int) -> None:
        """Close them, and keep connections of the process `keep_for` from now on; 0: none."""
        with self._lock:
            own = self._kept if self._process == os.getpid() else []
            self._process, self._kept = keep_for, []
        for _, connection in own:
            connection.close()

    def take(self, key: Hashable) -> Any | None:
        """Return the connection that was kept last under the key, or None. Close those under other keys."""
        with self._lock:
            if self._process != os.getpid():
                return None
            mine = [connection for one, connection in self._kept if one == key]
            others = [connection for one, connection in self._kept if one != key]
            self._kept = [(key, connection) for connection in mine[:-1]]
        for connection in others:  # of a file that is no longer there
            connection.close()
        return mine[-1] if mine else None

    def keep(self, key: Hashable, connection: Any) -> bool:
        """Keep the connection, unless there are enough of them. Return whether it is kept."""
        with self._lock:
            if self._process != os.getpid() or len(self._kept) >= MOST_KEPT:
                return False
            self._kept.append((key, connection))
            return True


class KeepsConnections:
    """For Django's database wrappers: `close` keeps the connection for the next thread of this process."""

    kept: ClassVar[KeptConnections]
    connection: Any
    errors_occurred: bool
    in_atomic_block: bool
    settings_dict: dict[str, Any]
    _key: Hashable = None
    #: Whether the connection had an error since it was opened or taken over.
    _had_errors = False

    def keep_after_close(self) -> None:
        """Let the connections of this process be kept from now on."""
        self.kept.begin()

    def keep_no_more(self) -> None:
        """Close the connections that are kept, and keep none from now on."""
        self.kept.end()

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self._key, self._had_errors = self.key_of_database(), False
        if self._key is not None and (found := self.kept.take(self._key)) is not None:
            if self.is_alive(found):
                return found
            found.close()
            self.kept.close_all()  # the server was started anew, or does not answer: they are no better
        opened = super().get_new_connection(conn_params)  # type: ignore[misc]
        self._key = self.key_of_database()  # the file may not have existed before
        return opened

    def close_if_unusable_or_obsolete(self) -> None:
        # Django forgets an error if the connection can be used. It may be the fault of the server that it
        # leads to, such as one that only takes reads since another is the first.
        self._had_errors = self._had_errors or self.errors_occurred
        super().close_if_unusable_or_obsolete()  # type: ignore[misc]

    def _close(self) -> Any:
        connection, sound = self.connection, False
        has_failed = self.errors_occurred or self._had_errors or self.in_atomic_block
        if connection is not None and self._key is not None and not has_failed:
            sound = self._key == self.key_of_database() and self.is_at_rest(connection)
        if not (sound and self.kept.keep(self._key, connection)):
            return super()._close()  # type: ignore[misc]
        return None

    def key_of_database(self) -> Hashable:
        """Return what must be the same for a connection to be used again; None: keep none."""
        names = ("NAME", "USER", "HOST", "PORT", "OPTIONS")
        return tuple(str(self.settings_dict.get(name)) for name in names)

    def is_at_rest(self, connection: Any) -> bool:
        """Whether the connection that is given up has no transaction left."""
        raise NotImplementedError

    def is_alive(self, connection: Any) -> bool:
        """Whether the connection that was kept can still be used."""
        raise NotImplementedError

"""A PostgreSQL connection that gives up on a server that does not respond, and that others take over.

The kernel of a host whose server hangs still acknowledges packets, so neither keepalives nor
`tcp_user_timeout` notice, and `statement_timeout` is the server's own. The client has to stop waiting.

The server in turn must not wait for a client that was lost or stopped in the middle of a transaction: its
locks would keep all others from its task until the server's own keepalives notice, usually after two hours.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.db.backends.postgresql.schema import DatabaseSchemaEditor as DjangoSchemaEditor
from psycopg.pq import TransactionStatus

from catherder_site.kept_connections import KeepsConnections, KeptConnections

RV = TypeVar("RV")

#: Seconds for telling the server to stop a statement that nobody waits for any more.
CANCEL_SECONDS = 2.0
#: The key in `OPTIONS`: seconds that one statement may take; absent or 0: no bound.
ANSWER_SECONDS = "answer_seconds"
#: The key in `OPTIONS`: seconds without a statement after which the server ends a transaction; absent or 0:
#: it waits.
IDLE_SECONDS = "idle_seconds"


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose statements raise OperationalError after `answer_seconds`."""

    answer_seconds: float | None = None

    def wait(
        self,
        gen: Generator[Any, Any, RV],
        interval: float = 0.1,
        timeout: float | None = None,
    ) -> RV:
        if timeout is not None or not self.answer_seconds:
            return super().wait(gen, interval, timeout)
        started = time.monotonic()
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except psycopg.OperationalError as error:
            if error.sqlstate or time.monotonic() - started < self.answer_seconds:
                raise  # the server, or the network, said what is wrong
            with suppress(psycopg.Error, TimeoutError):  # a server that hangs may not take even this
                self.cancel_safe(timeout=CANCEL_SECONDS)
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"the server did not answer within {self.answer_seconds:g} s"
            ) from None


class DatabaseSchemaEditor(DjangoSchemaEditor):
    """A schema editor without the timeouts: migrations run once, and somebody watches."""

    def __enter__(self) -> Any:
        self.connection.ensure_connection()
        connection = self.connection.connection
        _end_idle_transactions(connection, 0)
        self._answer_seconds, connection.answer_seconds = connection.answer_seconds, None
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        try:
            super().__exit__(*exc)
        finally:
            if self.connection.connection is not None:
                self.connection.connection.answer_seconds = self._answer_seconds


def _end_idle_transactions(connection: BoundedConnection, seconds: float) -> None:
    """Let the server end a transaction after `seconds` without a statement; 0: never.

    A statement, because poolers such as PgBouncer refuse `options` of a connection that they do not know.
    """
    connection.execute(f"SET idle_in_transaction_session_timeout = {round(1000 * seconds)}")


class BoundedWrapper(base.DatabaseWrapper):
    """Django's wrapper, with `OPTIONS["answer_seconds"]` and `OPTIONS["idle_seconds"]`."""

    SchemaEditorClass = DatabaseSchemaEditor

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        params.pop(ANSWER_SECONDS, None)
        params.pop(IDLE_SECONDS, None)
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> BoundedConnection:
        self.isolation_level = IsolationLevel.READ_COMMITTED
        connection = BoundedConnection.connect(**conn_params)
        options = self.settings_dict["OPTIONS"]
        connection.answer_seconds = options.get(ANSWER_SECONDS)
        if idle_seconds := options.get(IDLE_SECONDS):
            connection.autocommit = True  # Django sets its own mode after this
            _end_idle_transactions(connection, idle_seconds)
            connection.autocommit = False
        return connection


class DatabaseWrapper(KeepsConnections, BoundedWrapper):
    """The same wrapper, whose connections are kept."""

    kept = KeptConnections()

    def is_at_rest(self, connection: BoundedConnection) -> bool:
        return not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE

    def is_alive(self, connection: BoundedConnection) -> bool:
        """Ask the server: it may have been started anew since."""
        with suppress(psycopg.Error):
            connection.autocommit = True
            connection.execute("SELECT 1")
            return True
        return False

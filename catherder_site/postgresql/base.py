"""A PostgreSQL connection that gives up on a server that does not respond.

The kernel of a host whose server hangs still acknowledges packets, so neither keepalives nor
`tcp_user_timeout` notice, and `statement_timeout` is the server's own. The client has to stop waiting.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import IsolationLevel
from django.db.backends.postgresql.schema import DatabaseSchemaEditor as DjangoSchemaEditor
from psycopg.errors import _WaitTimeout

RV = TypeVar("RV")

#: Seconds for telling the server to stop a statement that nobody waits for any more.
CANCEL_SECONDS = 2.0
#: The key in `OPTIONS`: seconds that one statement may take; absent or 0: no bound.
ANSWER_SECONDS = "answer_seconds"


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
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except _WaitTimeout:
            self._give_up()
            raise psycopg.OperationalError(
                f"the server did not answer within {self.answer_seconds:g} s"
            ) from None

    def _give_up(self) -> None:
        """Cancel the statement, if the server still responds, and close the connection."""
        with suppress(psycopg.Error, TimeoutError):
            self.cancel_safe(timeout=CANCEL_SECONDS)
        self.pgconn.finish()


class DatabaseSchemaEditor(DjangoSchemaEditor):
    """A schema editor without the timeout: migrations run once, and somebody watches."""

    def __enter__(self) -> Any:
        self.connection.ensure_connection()
        connection = self.connection.connection
        self._answer_seconds, connection.answer_seconds = connection.answer_seconds, None
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        try:
            super().__exit__(*exc)
        finally:
            if self.connection.connection is not None:
                self.connection.connection.answer_seconds = self._answer_seconds


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's wrapper, with `OPTIONS["answer_seconds"]`."""

    SchemaEditorClass = DatabaseSchemaEditor

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        params.pop(ANSWER_SECONDS, None)
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> BoundedConnection:
        self.isolation_level = IsolationLevel.READ_COMMITTED
        connection = BoundedConnection.connect(**conn_params)
        connection.answer_seconds = self.settings_dict["OPTIONS"].get(ANSWER_SECONDS)
        return connection

"""Explain failures of the database, and what to do about them, in one sentence each."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, InterfaceError, OperationalError, connection


@dataclass(frozen=True)
class DatabaseFailure:
    """Why a database cannot be used (a sentence without its period), and what to do about it.

    `temporary`: whether it can resolve itself.
    """

    sentence: str
    advice: str
    temporary: bool = True


_LOCKED = DatabaseFailure(
    "The database is locked", "wait until the program that holds it has finished, or end it"
)
_FULL = DatabaseFailure("The disk of the database is full", "free some space there")
_DAMAGED = DatabaseFailure("The database is damaged", "stop the portal and restore a backup", temporary=False)
_NOT_OPENED = DatabaseFailure(
    "The database file cannot be opened", "check that it is a file that the portal's user may write"
)
_BROKEN_DISK = DatabaseFailure(
    "The disk of the database cannot be read or written", "check the disk and its free space"
)
_UNREACHABLE = DatabaseFailure("The database cannot be reached", "check that its server runs and answers")
#: SQLite's primary result codes (https://www.sqlite.org/rescode.html): the low byte of an extended one.
_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_NOMEM: DatabaseFailure(
        "The machine has no memory left for the database", "end programs or start fewer workers"
    ),
    sqlite3.SQLITE_READONLY: DatabaseFailure(
        "The database file cannot be written", "check the owner and permissions of file and folder"
    ),
    sqlite3.SQLITE_IOERR: _BROKEN_DISK,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CANTOPEN: _NOT_OPENED,
    sqlite3.SQLITE_PERM: _NOT_OPENED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
#: Prefixes of PostgreSQL's SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html); the
#: longest match is used.
_POSTGRES = {
    "08": DatabaseFailure("The connection to the database was lost", "try again in a moment"),
    "25006": DatabaseFailure("The database takes no writes now", "let the portal use the primary server"),
    "25P03": DatabaseFailure(
        "The database ended a transaction that had been idle for long", "try again in a moment"
    ),
    "28": DatabaseFailure("The database refuses the login", "check user and password in DATABASE_URL"),
    "3D": DatabaseFailure("The database does not exist", "create it, or correct DATABASE_URL"),
    "40": DatabaseFailure("The database was busy with a conflicting transaction", "try again in a moment"),
    "53": DatabaseFailure(
        "The database has no resources left", "give its server more, or start fewer workers"
    ),
    "53100": _FULL,
    "53300": DatabaseFailure(
        "The database has too many connections", "raise max_connections there, or start fewer processes"
    ),
    "55P03": _LOCKED,
    "57": DatabaseFailure("The database was stopped or ended the statement", "try again in a moment"),
    "58": _BROKEN_DISK,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}


def database_failure(error: BaseException) -> DatabaseFailure | None:
    """Return why the database itself failed, or None if the error is in the statement."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause: BaseException | None = error
    while cause is not None:  # Django wraps the driver's error, which has the code
        if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
            return _SQLITE.get(code & 0xFF)
        if (state := getattr(cause, "sqlstate", None)) is not None:
            return _POSTGRES.get(
                max((start for start in _POSTGRES if state.startswith(start)), key=len, default="")
            )
        cause = cause.__cause__
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    # The driver gave no code: on PostgreSQL there is no connection.
    if connection.vendor == "postgresql":
        return _UNREACHABLE
    return DatabaseFailure(f"The database failed ({error})", "the portal's log may say why")


def is_unavailable(error: BaseException) -> bool:
    """Return whether the database itself failed, not the statement."""
    return database_failure(error) is not None


def explain(error: BaseException, *, full_path: bool = True) -> str:
    """Return one sentence: which database, what is wrong, what to do, and the driver's message.

    Without `full_path` only the file's name is given, for readers without access to the machine.
    """
    failure = database_failure(error) or _UNREACHABLE
    message = " ".join(str(error).split()) or type(error).__name__
    name, sentence = _database_name(full_path=full_path), failure.sentence
    sentence = sentence[0].lower() + sentence[1:]
    return f"The database {name} cannot be used: {sentence}; {failure.advice} ({message})."


def _database_name(*, full_path: bool) -> str:
    settings = connection.settings_dict
    name = str(settings["NAME"])
    if connection.vendor == "sqlite":
        return name if full_path else Path(name).name
    if not full_path:
        return name
    server = ":".join(str(part) for part in (settings["HOST"] or "localhost", settings["PORT"]) if part)
    return f"{name} at {server}"

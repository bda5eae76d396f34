"""What a failure of the database means and what to do about it, in one sentence each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.db import DatabaseError, InterfaceError, OperationalError, connection


@dataclass(frozen=True)
class Reason:
    """Why a database cannot be used: a sentence without its end, what to do, whether it passes by itself."""

    sentence: str
    advice: str
    passes: bool = True


_LOCKED = Reason("The database is locked", "wait until the program that holds it has finished, or end it")
_FULL = Reason("The disk of the database is full", "free some space there")
_DAMAGED = Reason("The database is damaged", "stop the portal and restore a backup", passes=False)
_NOT_OPENED = Reason(
    "The database file cannot be opened", "check that it is a file that the portal's user may write"
)
_BROKEN_DISK = Reason(
    "The disk of the database cannot be read or written", "check the disk and its free space"
)
_AWAY = Reason("The database cannot be reached", "check that its server runs and answers")
#: SQLite's primary result codes (https://www.sqlite.org/rescode.html): the low byte of an extended one.
_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_NOMEM: Reason(
        "The machine has no memory left for the database", "end programs or start fewer workers"
    ),
    sqlite3.SQLITE_READONLY: Reason(
        "The database file cannot be written", "check the owner and permissions of file and folder"
    ),
    sqlite3.SQLITE_IOERR: _BROKEN_DISK,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_CANTOPEN: _NOT_OPENED,
    sqlite3.SQLITE_PERM: _NOT_OPENED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
#: Beginnings of PostgreSQL's SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html); the
#: longest that fits counts.
_POSTGRES = {
    "08": Reason("The connection to the database was lost", "try again in a moment"),
    "25006": Reason("The database takes no writes now", "let the portal use the primary server"),
    "28": Reason("The database refuses the login", "check user and password in DATABASE_URL"),
    "3D": Reason("The database does not exist", "create it, or correct DATABASE_URL"),
    "40": Reason("The database was busy with a conflicting transaction", "try again in a moment"),
    "53": Reason("The database has no resources left", "give its server more, or start fewer workers"),
    "53100": _FULL,
    "53300": Reason(
        "The database has too many connections", "raise max_connections there, or start fewer processes"
    ),
    "55P03": _LOCKED,
    "57": Reason("The database was stopped or ended the statement", "try again in a moment"),
    "58": _BROKEN_DISK,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}


def reason_of(error: BaseException) -> Reason | None:
    """Why the database itself failed: away, locked, full, damaged; None for a statement that was wrong."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    for cause in _causes(error):
        if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
            return _SQLITE.get(code & 0xFF)
        if (state := getattr(cause, "sqlstate", None)) is not None:
            return _POSTGRES.get(
                max((start for start in _POSTGRES if state.startswith(start)), key=len, default="")
            )
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    # The driver said no more: on PostgreSQL there is no connection.
    if connection.vendor == "postgresql":
        return _AWAY
    return Reason(f"The database failed ({error})", "the portal's log may say why")


def is_unavailable(error: BaseException) -> bool:
    """Whether the database itself failed; not a statement that was wrong."""
    return reason_of(error) is not None


def explain(error: BaseException, *, full_path: bool = True) -> str:
    """One sentence: which database, what is wrong with it, what to do; then the database's own words.

    Without `full_path` a file is named by its last part only, for readers who are not at the machine.
    """
    reason = reason_of(error) or _AWAY
    own_words = " ".join(str(error).split()) or type(error).__name__
    what = reason.sentence[0].lower() + reason.sentence[1:]
    name = _name(full_path=full_path)
    return f"The database {name} cannot be used: {what}; {reason.advice} ({own_words})."


def _name(*, full_path: bool) -> str:
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return str(settings["NAME"]) if full_path else Path(str(settings["NAME"])).name
    place = ":".join(str(part) for part in (settings["HOST"] or "localhost", settings["PORT"]) if part)
    return f"{settings['NAME']} at {place}" if full_path else str(settings["NAME"])


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from: Django wraps the driver's."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__

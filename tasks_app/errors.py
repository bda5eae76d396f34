"""Everything that can go wrong and has a name. Messages are written for people."""

from __future__ import annotations


class CatHerderError(Exception):
    """Base of all named errors; `str(error)` can be shown to a user as it is."""


class BadInput(CatHerderError):
    """Something a person wrote is not usable. `where` names the place it came from."""

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where


class WorkspaceError(CatHerderError):
    """A git repository or a task's clone is not as it must be; says which and why."""

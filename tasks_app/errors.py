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


class IllegalMove(CatHerderError):
    """A phase change that the table of moves does not allow, or that somebody else was first with."""

    def __init__(self, what: str, source: str, target: str) -> None:
        super().__init__(f"{what} is {source} and cannot become {target}")
        self.source = source
        self.target = target


class LeaseLost(CatHerderError):
    """Somebody else holds the task now; whatever the former holder still writes must not count."""


class AnswerRefused(CatHerderError):
    """Base of the reasons why an answer is not taken. Nothing was changed."""


class AnswerEmpty(AnswerRefused):
    """Nothing was answered, or one of several questions was left out; `where`: the field that is empty."""

    def __init__(self, message: str, *, where: str = "answer") -> None:
        super().__init__(message)
        self.message = message
        self.where = where


class AnswerTooLong(AnswerRefused):
    """The answer is longer than the installation takes."""

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(
            f"The answer has {size:,} characters; this installation takes up to {limit:,}. "
            "Put the long part into a file in the repository and name it here."
        )
        self.size = size
        self.limit = limit


class NotOpen(AnswerRefused):
    """The question is answered already, or was withdrawn. Says by whom, when and what."""


class NotAllowed(CatHerderError):
    """The person may see this but not do that."""


class JailError(CatHerderError):
    """A command cannot be put into the sandbox as asked; says which path is in the way."""


class SandboxUnavailable(JailError):
    """A sandbox is demanded and this machine cannot give one; says why and what to do."""

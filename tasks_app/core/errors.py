"""Everything that can go wrong and has a name. Messages are written for people."""

from __future__ import annotations

import errno

#: What passes by itself although nobody mends the portal, in words for people, by its errno.
MACHINE_FAULTS = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EIO: "The disk cannot be read or written",
    errno.ESTALE: "The network file system lost a file",
    errno.ENOMEM: "The machine has no memory left",
    errno.EMFILE: "The portal has too many open files",
    errno.ENFILE: "The machine has too many open files",
    errno.EAGAIN: "The machine has no room for another process",
}


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


class PassingFault(CatHerderError):
    """Something is in the way that passes: it is tried again later. The message says what it is."""


class RepositoryDamaged(WorkspaceError):
    """The portal's own copy of a repository cannot be read; says which, and that fetching repairs it."""


class WrongDataDirectory(CatHerderError):
    """The data directory does not belong to the database; says what is in both and what to do."""


def machine_fault(error: BaseException | None) -> str:
    """What of the machine is in the way, if that is what the error says and it passes; else ""."""
    return MACHINE_FAULTS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


class IllegalMove(CatHerderError):
    """A phase change that the table of moves does not allow, or that somebody else was first with."""

    def __init__(self, what: str, source: str, target: str) -> None:
        super().__init__(f"{what} is {source} and cannot become {target}")
        self.source = source
        self.target = target


class TranscriptDamaged(CatHerderError):
    """The stored transcript of a session cannot be read or resumed from; the text says why."""


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


class SandboxError(CatHerderError):
    """A command cannot be put into the sandbox as asked; says which path is in the way."""


class SandboxUnavailable(SandboxError):
    """A sandbox is demanded and this machine cannot give one; says why and what to do."""


class BackupError(CatHerderError):
    """A backup cannot be written, read or restored; says why. Nothing was changed."""

"""Named errors. Their messages are for people."""

from __future__ import annotations

import errno

#: Descriptions of temporary errors of the machine, by errno.
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


class BadSetting(Exception):
    """A variable has an invalid value; the message names it."""


class BadInput(CatHerderError):
    """Input of a person is invalid. `where` names the field, file or line."""

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where


class WorkspaceError(CatHerderError):
    """A git repository or a task's clone is unusable."""


class BranchMissing(WorkspaceError):
    """The source lacks the branch from which the tasks of a project start. It may have been renamed."""


class SubmodulesUnavailable(WorkspaceError):
    """Submodules of a task cannot be fetched from here. Another host may reach them."""


class TookTooLong(WorkspaceError):
    """A git was stopped because it did not end in time."""


class PublishingFailed(WorkspaceError):
    """A commit was not published. The message names the repository, the branch and the reason."""


class MergeConflict(WorkspaceError):
    """Two commits cannot be merged, because both changed the same lines of `files`.

    `tree` is the merge with conflict markers in them, as git leaves it.
    """

    def __init__(self, files: list[str], *, tree: str = "") -> None:
        super().__init__(f"These files conflict: {', '.join(files)}.")
        self.files, self.tree = files, tree


class UpdateConflict(PublishingFailed):
    """A result cannot be updated before it is published, because `files` conflict."""

    def __init__(self, message: str, files: list[str]) -> None:
        super().__init__(message)
        self.files = files


class TemporaryFault(CatHerderError):
    """A temporary error, after which the work is tried again."""


class InUse(TemporaryFault):
    """Another task uses what this one needs. It is tried again soon, however often that was so."""


class RepositoryDamaged(WorkspaceError):
    """The portal's own copy of a repository cannot be read; fetching repairs it."""


class WrongDataDirectory(CatHerderError):
    """The data directory does not belong to the database."""


def machine_fault(error: BaseException | None) -> str:
    """Return a description if the error is a temporary one of the machine, else ""."""
    if isinstance(error, OSError):
        return MACHINE_FAULTS.get(error.errno or 0, "")
    return ""


class IllegalMove(CatHerderError):
    """A change of phase that is not allowed, or that came too late."""

    def __init__(self, what: str, source: str, target: str) -> None:
        was, wanted = (phase.replace("_", " ") for phase in (source, target))  # as pages name them
        super().__init__(f"{what} is {was} and cannot become {wanted}")
        self.source = source
        self.target = target


class DecisionChanged(CatHerderError):
    """A decision is not in the state that the action needs; somebody may have changed it meanwhile."""


class SetupFailed(CatHerderError):
    """A command of the project's setup failed. The message has the command, its exit code and last lines."""


class TranscriptDamaged(CatHerderError):
    """The stored transcript of a session cannot be read or resumed."""


class LeaseLost(CatHerderError):
    """Another worker holds the task now, so this one must not write any more."""


class AnswerRefused(CatHerderError):
    """Base of the reasons why an answer is refused. Nothing was changed."""


class AnswerInvalid(AnswerRefused):
    """The input is not an answer; `where` is its field."""

    def __init__(self, message: str, *, where: str = "answer") -> None:
        super().__init__(message)
        self.message = message
        self.where = where


class AnswerEmpty(AnswerInvalid):
    """The answer is empty, or one of several questions is not answered."""


class BadAmount(AnswerInvalid):
    """The answer at a soft cost limit is not an amount of dollars that the task may spend."""


class AnswerTooLong(AnswerRefused):
    """The answer is longer than the installation's limit."""

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(
            f"The answer has {size:,} characters; this installation takes up to {limit:,}. "
            "Put the long part into a file in the repository and name it here."
        )
        self.size = size
        self.limit = limit


class NotOpen(AnswerRefused):
    """The question was already answered or withdrawn. The message says by whom, when and what."""


class TooLateToUndo(AnswerRefused):
    """The answer can no longer be taken back: time is up, or the agent has it."""


class ResultChanged(CatHerderError):
    """The result is not the one that the reviewer looked at. Nothing was changed."""


class NotAllowed(CatHerderError):
    """The user may see this, but not do that."""


class SandboxError(CatHerderError):
    """A command cannot be run in the sandbox; the message names the path."""


class SandboxUnavailable(SandboxError):
    """A sandbox is required, but this machine has none."""


class BackupError(CatHerderError):
    """A backup cannot be written, read or restored. Nothing was changed."""

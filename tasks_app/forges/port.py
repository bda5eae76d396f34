"""What the portal wants of a forge, in words that all of them share.

GitLab calls a pull request a merge request; here all are pull requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tasks_app.core.errors import CatHerderError


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"
    FORGEJO = "forgejo"

    @property
    def label(self) -> str:
        return {"github": "GitHub", "gitlab": "GitLab", "forgejo": "Forgejo"}[self.value]


class PullRequestState(StrEnum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class CheckState(StrEnum):
    """The result of one CI check; a skipped or cancelled one says nothing about the code."""

    PENDING = "pending"
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class ForgeError(CatHerderError):
    """A forge did not do what it was asked. The message is for people and repeats no credential.

    `retry_after`: the seconds for which a rate limit holds; None if it is none.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class NewPullRequest:
    """A pull request to open: merge the branch `head`, which may be in a fork, into the branch `base`."""

    head: str
    base: str
    title: str
    body: str
    draft: bool = False


@dataclass(frozen=True)
class RemotePullRequest:
    """A pull request as the forge has it. `ended_by`: who merged or closed it, "" if unknown."""

    number: int
    url: str
    state: PullRequestState
    draft: bool
    title: str
    body: str
    head_commit: str
    ended_by: str = ""


@dataclass(frozen=True)
class RemoteComment:
    """A comment on a pull request. Comments with the same `discussion` answer each other.

    Without `path` it is about the whole; without `line`, about a file. `commit` has the line.
    """

    id: str
    discussion: str
    author: str
    text: str
    path: str = ""
    line: int | None = None
    first_line: int | None = None
    old_side: bool = False
    commit: str = ""


@dataclass(frozen=True)
class RemoteCheck:
    name: str
    state: CheckState
    url: str = ""


class Forge(Protocol):
    """One repository at a forge. Every call may raise ForgeError."""

    kind: ForgeKind

    def find(self, head: str, base: str) -> RemotePullRequest | None:
        """Return the open pull request from `head` to `base`, if there is one.

        A branch of the same name in somebody else's fork is another one.
        """

    def open(self, new: NewPullRequest) -> RemotePullRequest: ...

    def update(self, number: int, *, body: str) -> RemotePullRequest:
        """Replace the description."""

    def request_reviews(self, number: int, reviewers: tuple[str, ...]) -> None:
        """Ask these users for reviews, besides those who were asked before."""

    def read(self, number: int) -> RemotePullRequest: ...

    def comments(self, number: int) -> list[RemoteComment]:
        """Return what people wrote, the oldest first: comments on lines, on the whole, and of reviews."""

    def checks(self, commit: str) -> list[RemoteCheck]: ...

    def reply(self, number: int, comment: RemoteComment, text: str) -> str:
        """Answer in the discussion of the comment and return the id of the new comment."""

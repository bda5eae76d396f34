"""The port to forges, in words that all of them share.

GitLab calls a pull request a merge request; here all are pull requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

from tasks_app.core.allowed_networks import Network
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

    `retry_after`: the seconds for which a rate limit holds; None without one.
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
        """Ask these users for reviews, in addition to earlier reviewers."""

    def read(self, number: int) -> RemotePullRequest: ...

    def comments(self, number: int) -> list[RemoteComment]:
        """Return what people wrote, the oldest first: comments on lines, on the whole, and of reviews."""

    def checks(self, commit: str) -> list[RemoteCheck]: ...

    def reply(self, number: int, comment: RemoteComment, text: str) -> str:
        """Answer in the discussion of the comment and return the id of the new comment."""


# From the URL of a repository to its forge: which kind it is, where its API is, its name there.


#: Hosts that everybody knows. For another host, the project's settings say what it is.
_KNOWN = {
    "github.com": ForgeKind.GITHUB,
    "gitlab.com": ForgeKind.GITLAB,
    "codeberg.org": ForgeKind.FORGEJO,
}
_API_PATHS = {ForgeKind.GITHUB: "/api/v3", ForgeKind.GITLAB: "/api/v4", ForgeKind.FORGEJO: "/api/v1"}


@dataclass(frozen=True)
class ForgeAddress:
    """The address of a repository's pull requests. `repository` is its path, such as `team/shop`.

    `fork`: the path of the repository that has the branches, if they are in a fork of it; else "".
    """

    kind: ForgeKind
    api_url: str
    repository: str
    fork: str = ""


def forge_address(url: str, *, kind: str = "", api_url: str = "") -> ForgeAddress | None:
    """Return where the pull requests of the repository at `url` are; None if it is at no known forge.

    `kind` and `api_url` are the settings of the project, "" for those that follow from the URL.
    """
    host, path = _host_and_path(url)
    known = _KNOWN.get(host)
    if not path or not (kind or known):
        return None
    found = ForgeKind(kind) if kind else known
    if found is None or path.count("/") < 1 or (found != ForgeKind.GITLAB and path.count("/") > 1):
        return None
    return ForgeAddress(found, (api_url or _api_url(found, host, url)).rstrip("/"), path)


def _api_url(kind: ForgeKind, host: str, url: str) -> str:
    if host == "github.com":
        return "https://api.github.com"
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.port:
        host = f"{host}:{parts.port}"
    return f"https://{host}{_API_PATHS[kind]}"


def _host_and_path(url: str) -> tuple[str, str]:
    """Return host and path of an https or ssh URL, also of `git@HOST:PATH`; two empty texts for a folder."""
    if "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
    elif "@" in url.partition("/")[0] and ":" in url:
        host, _, path = url.partition("@")[2].partition(":")
    else:
        return "", ""
    return host.lower(), path.strip("/").removesuffix(".git")


def connect(address: ForgeAddress, token: str, *, listed: Iterable[Network] = ()) -> Forge:
    """Return the repository's forge. Nothing is sent yet.

    The library of an adapter takes a second to import, so it is imported when it is needed.
    """
    if address.kind == ForgeKind.GITHUB:
        from tasks_app.forges.github import GitHub

        return GitHub(address, token, listed=listed)
    if address.kind == ForgeKind.GITLAB:
        from tasks_app.forges.gitlab import GitLab

        return GitLab(address, token, listed=listed)
    from tasks_app.forges.forgejo import Forgejo

    return Forgejo(address, token, listed=listed)

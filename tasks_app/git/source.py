"""The source of a project's code: a repository on this machine or at a URL."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.core.text import storable_text
from tasks_app.git.names import valid_commit
from tasks_app.git.program import NETWORK_SECONDS, Git

_SCP_LIKE = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!/?/)[^\s]+")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::?//|[A-Za-z][A-Za-z0-9+.-]*::")
#: A user name of an https URL with as many characters is a token: services accept tokens in its place.
_SHORTEST_TOKEN = 32
_LINES = re.compile(r"^ref: refs/heads/(?P<branch>\S+)\tHEAD$|^(?P<commit>[0-9a-f]{40,64})\tHEAD$", re.M)


@dataclass(frozen=True)
class InspectedSource:
    """A usable source: its absolute path or URL, and the branch and commit of its HEAD."""

    source: str
    head_branch: str
    head_commit: str


def inspect_source(source: str, *, seconds: float = NETWORK_SECONDS) -> InspectedSource:
    """Inspect a source without copying it, for at most `seconds` if it is reached through a network.

    Raises BadInput if it is neither a path nor an https or ssh URL, and WorkspaceError if it is not a
    repository with a commit on a branch.
    """
    source = normalise_source(source)
    if is_url(source):
        output = Git().run("ls-remote", "--symref", "--", source, "HEAD", timeout=seconds)
    else:
        output = _read_head_of_folder(Path(source))
    matches = list(_LINES.finditer(output.decode("utf-8", errors="replace")))
    branch = next((found["branch"] for found in matches if found["branch"]), "")
    commit = next((found["commit"] for found in matches if found["commit"]), "")
    if not commit:
        raise WorkspaceError(f"{source}: the repository has no commit on its current branch.")
    if not branch:
        raise WorkspaceError(f"{source}: the repository is on no branch (detached HEAD); check one out.")
    return InspectedSource(source, branch, valid_commit(commit))


def has_branch(source: str, branch: str, *, seconds: float = NETWORK_SECONDS) -> bool:
    """Return whether the source (from `inspect_source`) has the branch now. Raises WorkspaceError."""
    words = (*upload_pack(source), "--", source, f"refs/heads/{branch}")
    return bool(Git().run("ls-remote", "--heads", *words, timeout=seconds).strip())


def normalise_source(source: str) -> str:
    """Return the absolute path or the URL. Raises BadInput if it is neither."""
    text = source.strip()
    if not text or "\n" in text or storable_text(text) != text:
        raise BadInput("name a folder or an https or ssh URL.", where=ascii(source))
    if is_url(text):
        _refuse_unsafe_url(text)
        return text
    if _HAS_SCHEME.match(text):
        raise BadInput("only https and ssh URLs and plain paths are taken as a source.", where=text)
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
    except (OSError, RuntimeError) as error:  # too long, or in the home of an unknown user
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"this is not a path that can be used: {reason}", where=text[:100]) from error
    return str(path)


def is_url(source: str) -> bool:
    return source.startswith(("https://", "ssh://")) or bool(_SCP_LIKE.fullmatch(source))


def upload_pack(source: str) -> tuple[str, ...]:
    """Return options that let git read a folder of another user, which it would refuse.

    A maintainer has named this folder.
    """
    if is_url(source):
        return ()
    return (f"--upload-pack={_trusting(source, 'upload-pack')}",)


def receive_pack(target: str) -> tuple[str, ...]:
    """Return options that let git write to a folder of another user, which it would refuse."""
    if is_url(target):
        return ()
    return (f"--receive-pack={_trusting(target, 'receive-pack')}",)


def _trusting(folder: str, program: str) -> str:
    # git compares with the folder that it finds, which may be either.
    trusted = " ".join(f"-c safe.directory={shlex.quote(path)}" for path in (folder, f"{folder}/.git"))
    return f"git {trusted} {program}"


def _read_head_of_folder(folder: Path) -> bytes:
    if not folder.exists():
        raise WorkspaceError(f"{folder} does not exist.")
    if not folder.is_dir():
        raise WorkspaceError(f"{folder} is not a directory.")
    try:
        return Git().run("ls-remote", "--symref", *upload_pack(str(folder)), "--", str(folder), "HEAD")
    except WorkspaceError as error:
        if "does not appear to be a git repository" in str(error):
            raise WorkspaceError(f"{folder} is not the top folder of a git repository.") from error
        raise WorkspaceError(f"{folder}: {error}") from error


def _refuse_unsafe_url(url: str) -> None:
    if "://" not in url:
        return
    try:
        parts = urlsplit(url)
        host, password = parts.hostname, parts.password
    except ValueError as error:
        raise BadInput(f"not a URL: {error}", where=url) from error
    if password is not None or (parts.scheme == "https" and len(parts.username or "") >= _SHORTEST_TOKEN):
        # The password would be shown on every page and in every error message of the project.
        raise BadInput(
            "a source must not contain a password; give the portal's user a key.", where=host or "URL"
        )
    if not host or host.startswith("-") or (parts.username or "").startswith("-"):
        raise BadInput("the URL names no usable host.", where=url)

"""Where a project's code comes from: a repository on this machine or behind a URL."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.core.storable import storable_text
from tasks_app.git.program import NETWORK_SECONDS, Git, valid_commit

_SCP_LIKE = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!/?/)[^\s]+")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::?//|[A-Za-z][A-Za-z0-9+.-]*::")
#: A user of an https address that is so long is no name but a token: services take these in its place.
_SHORTEST_TOKEN = 32
_LINES = re.compile(r"^ref: refs/heads/(?P<branch>\S+)\tHEAD$|^(?P<commit>[0-9a-f]{40,64})\tHEAD$", re.M)


@dataclass(frozen=True)
class SourceFacts:
    """A usable source: absolute path or URL, and the branch and commit that its HEAD names."""

    source: str
    head_branch: str
    head_commit: str


def inspect_source(source: str, *, seconds: float = NETWORK_SECONDS) -> SourceFacts:
    """Look at a source without copying it, for at most `seconds` where a network is in between.

    Raises BadInput for something that is no path and no https or ssh URL, WorkspaceError if there
    is no repository with a commit on a branch.
    """
    place = normalised(source)
    found = _named_groups(_look_behind_url(place, seconds) if is_url(place) else _look_at_folder(Path(place)))
    if "commit" not in found:
        raise WorkspaceError(f"{place}: the repository has no commit on its current branch.")
    if "branch" not in found:
        raise WorkspaceError(f"{place}: the repository is on no branch (detached HEAD); check one out.")
    return SourceFacts(place, found["branch"], valid_commit(found["commit"]))


def has_branch(source: str, branch: str, *, seconds: float = NETWORK_SECONDS) -> bool:
    """Whether the source, as `inspect_source` gives it, has the branch now. Raises WorkspaceError."""
    place = ("--", source, f"refs/heads/{branch}")
    return bool(Git().run("ls-remote", "--heads", *upload_pack(source), *place, timeout=seconds).strip())


def normalised(source: str) -> str:
    """The absolute path or the URL that is meant. BadInput if it is neither."""
    text = source.strip()
    if not text or "\n" in text or storable_text(text) != text:
        raise BadInput("name a folder or an https or ssh URL.", where=ascii(source))
    if is_url(text):
        return _safe_url(text)
    if _HAS_SCHEME.match(text):
        raise BadInput("only https and ssh URLs and plain paths are taken as a source.", where=text)
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
    except (OSError, RuntimeError) as error:  # too long, or in the home of nobody
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"this is not a path that can be used: {reason}", where=text[:100]) from error
    return str(path)


def is_url(source: str) -> bool:
    return source.startswith(("https://", "ssh://")) or bool(_SCP_LIKE.fullmatch(source))


def upload_pack(source: str) -> tuple[str, ...]:
    """git refuses a repository of another user; here a maintainer has named this very folder."""
    if is_url(source):
        return ()
    # Both names, as git compares with the folder that it finds there.
    trusted = " ".join(f"-c safe.directory={shlex.quote(path)}" for path in (source, f"{source}/.git"))
    return (f"--upload-pack=git {trusted} upload-pack",)


def _named_groups(output: bytes) -> dict[str, str]:
    matches = _LINES.finditer(output.decode("utf-8", errors="replace"))
    return {name: text for match in matches for name, text in match.groupdict().items() if text}


def _look_behind_url(url: str, seconds: float) -> bytes:
    return Git().run("ls-remote", "--symref", "--", url, "HEAD", timeout=seconds)


def _look_at_folder(folder: Path) -> bytes:
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


def _safe_url(url: str) -> str:
    if "://" not in url:
        return url
    try:
        parts = urlsplit(url)
        host, password = parts.hostname, parts.password
    except ValueError as error:
        raise BadInput(f"not a URL: {error}", where=url) from error
    if password is not None or (parts.scheme == "https" and len(parts.username or "") >= _SHORTEST_TOKEN):
        # It would stand on every page and in every error message of the project.
        raise BadInput(
            "a source must not contain a password; give the portal's user a key.", where=host or "URL"
        )
    if not host or host.startswith("-") or (parts.username or "").startswith("-"):
        raise BadInput("the URL names no usable host.", where=url)
    return url

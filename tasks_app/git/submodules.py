"""Submodules of a project: from where they may be fetched, and bringing them into a new workspace (M5).

A repository's `.gitmodules` is written by everybody who can commit, and the portal fetches with rights of its
own: it reads folders of its machine, and ssh shows its user's key. So the installation says what may be
fetched (`AllowedSources`). By default that is only what anybody can read over https at the host of the
project's own source.

Each submodule has a bare repository of its own beside the project's, in which the portal runs git. The
workspace gets a clone of it. Only paths of gitlinks in a commit are used, never names of `.gitmodules`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git.faults import damage_marker
from tasks_app.git.names import valid_commit
from tasks_app.git.program import NETWORK_SECONDS, Git, init, split_stream
from tasks_app.git.repository import Repository
from tasks_app.git.source import is_url, normalise_source, upload_pack

#: Limits of what one workspace may have, in case submodules contain each other.
MOST, DEEPEST = 200, 8
_MODULES_BYTES = 1_000_000
_FILE = ".gitmodules"
_SCP_LIKE = re.compile(r"(?P<root>[^/:@]+@[^/:]+:)(?P<path>.*)", re.DOTALL)
_HIDDEN_DOTS = re.compile(r"%2e|\\", re.IGNORECASE)
#: How git and ssh say that a server wants a login.
_LOGIN = re.compile(r"terminal prompts disabled|could not read (?:Username|Password)|Authentication failed"
                    r"|Permission denied|Host key verification failed|error: 40[13]")  # fmt: skip
_REDIRECT = re.compile(r"error: 30\d|redirect", re.IGNORECASE)
_AUTHOR = (("user.name", "Cat Herder"), ("user.email", "cat-herder@localhost"))


@dataclass(frozen=True)
class AllowedSources:
    """From where submodules of a project may be fetched.

    `source` is the project's own. `listed` are further ones that the installation allows: URLs and folders
    with everything below them, or `https://` for every host. `folders_hidden` are never read; without
    `local`, no folder of this machine is.
    """

    source: str
    listed: tuple[str, ...] = ()
    folders_hidden: tuple[Path, ...] = ()
    local: bool = True

    def require(self, url: str) -> str:
        """Return the URL or path in git's words. Raises BadInput if nothing may be fetched from there."""
        if not is_url(url) and not url.startswith("/"):
            raise BadInput("only https and ssh URLs, and folders that the installation lists, are taken")
        found = normalise_source(url)
        if not is_url(found):
            return self._require_folder(Path(found))
        try:
            (_, parts), _ = _split(found), _host(found)
        except ValueError as error:
            raise BadInput(f"not a URL: {error}") from error
        if ".." in parts or "." in parts or _HIDDEN_DOTS.search(found):
            raise BadInput("the URL must not contain . or .. after its beginning")
        if not self._is_open(found) and not self._is_listed(found):
            raise BadInput(_NOT_ALLOWED)
        return found

    def _is_listed(self, url: str) -> bool:
        if "https://" in self.listed and url.startswith("https://"):
            return True
        return any(_covers(one, url) for one in self.listed if not one.startswith("/"))

    def _is_open(self, url: str) -> bool:
        """Return whether the URL is read over https without a login, at the host of the project's source."""
        mine = _host(url)
        is_public = url.startswith("https://") and "@" not in urlsplit(url).netloc
        return is_public and mine != "" and is_url(self.source) and mine == _host(self.source)

    def _require_folder(self, folder: Path) -> str:
        if not self.local:
            raise BadInput("it is a folder of the portal's machine, which a worker host does not have")
        allowed = [Path(one).resolve() for one in self.listed if one.startswith("/")]
        hidden = any(folder.is_relative_to(one.resolve()) for one in self.folders_hidden)
        if hidden or not any(folder.is_relative_to(one) for one in allowed):
            raise BadInput(_NOT_ALLOWED)
        return str(folder)


_NOT_ALLOWED = (
    "this installation fetches submodules only over https, without a login, from the host of the project's"
    " own source, and from what CATHERDER_SUBMODULES lists"
)


def absolute_url(url: str, parent: str) -> str:
    """Return a submodule's URL, where one with ./ or ../ begins at its parent's, as git has it.

    Raises BadInput if it leads out of the parent's host.
    """
    if not url.startswith(("./", "../")):
        return url
    root, parts = _split(parent)
    rest = [part for part in url.split("/") if part not in ("", ".")]
    while rest and rest[0] == "..":
        if not parts:
            raise BadInput(f"{url} leads out of {parent}")
        parts.pop()
        rest.pop(0)
    return root + "/".join([*parts, *rest])


def _split(url: str) -> tuple[str, list[str]]:
    """Return the part of a URL or path before its path, and the segments of that."""
    if "://" in url:
        parts = urlsplit(url)
        root, path = f"{parts.scheme}://{parts.netloc.lower()}/", parts.path
    elif found := _SCP_LIKE.fullmatch(url):
        root, path = found["root"], found["path"]
    else:
        root, path = "/", url
    return root, [part for part in path.split("/") if part]


def _covers(listed: str, url: str) -> bool:
    (listed_root, listed_parts), (root, parts) = _split(listed), _split(url)
    return listed_root == root and parts[: len(listed_parts)] == listed_parts


def _host(url: str) -> str:
    if "://" not in url:
        return url.partition("@")[2].partition(":")[0].lower()
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if parts.scheme == "https" and parts.port not in (None, 443):
        return f"{host}:{parts.port}"
    return host


@dataclass(frozen=True)
class Submodule:
    """A submodule of a workspace: at `path`, the `commit` of its own bare `repository`."""

    path: str
    commit: str
    repository: Repository

    def check_out(self, workspace: Path) -> None:
        """Make its clone in a workspace that no agent has seen. Raises WorkspaceError."""
        folder = workspace / self.path
        is_own = folder.resolve() == workspace.resolve() / self.path
        if not is_own or not folder.is_dir() or any(folder.iterdir()):
            raise WorkspaceError(f"The submodule {self.path} has no empty folder in the commit.")
        init(folder, "--initial-branch=main", settings=(*_AUTHOR, ACTIVE))
        git = Git(folder / ".git", work_tree=folder)
        git.run(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
            "--update-shallow", "--", str(self.repository.path), f"{_ref(self.commit)}:{_REMOTE}/wanted",
            f"+refs/source/*:{_REMOTE}/*",
        )  # fmt: skip
        git.run("checkout", "--quiet", "--force", "--detach", self.commit, "--")


#: Lets git see all submodules of a clone as in use.
ACTIVE = ("submodule.active", ".")
_REMOTE = "refs/remotes/origin"


def _ref(commit: str) -> str:
    return f"refs/cat-herder-wanted/{valid_commit(commit)}"


@dataclass(frozen=True)
class SubmoduleStore:
    """The bare repositories of a project's submodules, in `folder`. It is a cache that may be deleted."""

    folder: Path
    allowed: AllowedSources

    def fetch(self, repository: Repository, commit: str, *, declared_in: str) -> tuple[Submodule, ...]:
        """Fetch what the submodules of a commit need, also nested ones, and return them, outer ones first.

        The commit may be an agent's: what is fetched from where is read in the commit `declared_in`, which
        people have made. Raises WorkspaceError that names the submodule that cannot be fetched.
        """
        found: list[Submodule] = []
        to_look_at = [(repository, commit, declared_in, self.allowed.source, "", 0)]
        while to_look_at:
            parent, at, declared, url, prefix, depth = to_look_at.pop(0)
            for path, wanted, own_url in _declared(parent, at, declared, url, prefix):
                if len(found) >= MOST or depth >= DEEPEST:
                    raise WorkspaceError(
                        f"The project has more than {MOST} submodules, or they are nested more than"
                        f" {DEEPEST} deep."
                    )
                one = self._fetched(prefix + path, wanted, own_url)
                found.append(one)
                to_look_at.append(
                    (one.repository, wanted, wanted, one.repository.source, f"{one.path}/", depth + 1)
                )
        return tuple(found)

    def _fetched(self, path: str, commit: str, url: str) -> Submodule:
        try:
            source = self.allowed.require(url)
        except BadInput as error:
            shown = re.sub(r"//[^/]*@", "//", url)  # what stands before its host may be a password
            raise WorkspaceError(f"The submodule {path} cannot be fetched from {shown}: {error}.") from error
        name = hashlib.sha256(source.encode()).hexdigest()[:32]
        repository = Repository(
            self.folder / f"{name}.git", source, f"the submodule {path}", ("http.followRedirects=false",)
        )
        # It may have been fetched before, and nothing is known to be damaged since.
        damaged = damage_marker(repository.path).exists() or not repository.path.exists()
        if damaged or not repository.refs(_ref(commit)):
            self._bring(repository, path, commit)
        return Submodule(path, commit, repository)

    def _bring(self, repository: Repository, path: str, commit: str) -> None:
        try:
            if not is_url(repository.source) and not Path(repository.source).is_dir():
                raise WorkspaceError("the folder does not exist.")
            repository.fetch()
            if not repository.has(commit):
                self._fetch_commit(repository, commit)
        except WorkspaceError as error:
            raise WorkspaceError(
                f"The submodule {path} cannot be fetched from {repository.source}: {fault_words(error)}"
            ) from error
        repository.set_refs(commit, _ref(commit))

    def _fetch_commit(self, repository: Repository, commit: str) -> None:
        """Fetch a commit that is on no branch of the source."""
        git = replace(repository.git, owner="", settings=repository.settings)
        words = ("--no-recurse-submodules", "--update-shallow", *upload_pack(repository.source), "--")
        try:
            git.run(
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *words, repository.source,
                f"{commit}:{_ref(commit)}", timeout=NETWORK_SECONDS,
            )  # fmt: skip
        except WorkspaceError as error:
            if _LOGIN.search(str(error)):
                raise
            raise WorkspaceError(f"it does not have the commit {commit[:10]} ({error})") from error


def fault_words(error: WorkspaceError) -> str:
    """Return why a submodule could not be fetched, in a sentence for people."""
    text = str(error)
    if _LOGIN.search(text):
        return "the server asks for a login, and the portal has none for submodules."
    if _REDIRECT.search(text):
        return "the server redirects. Write the URL to which it redirects, often with .git at its end."
    return text


def _declared(
    repository: Repository, commit: str, declared_in: str, url: str, prefix: str
) -> Iterator[tuple[str, str, str]]:
    """Yield path, commit and URL of each submodule of a commit that `.gitmodules` names."""
    urls = _urls(repository, declared_in, prefix)
    if not urls:
        return
    listed = repository.git.stream("ls-tree", "-r", "-z", "--full-tree", valid_commit(commit))
    for entry in split_stream(listed, b"\0"):
        fields, _, name = entry.partition(b"\t")
        path = name.decode("utf-8", "surrogateescape")
        if fields.startswith(b"160000 ") and path in urls:
            try:
                yield path, fields.split()[2].decode(), absolute_url(urls[path], url)
            except BadInput as error:
                raise WorkspaceError(f"The submodule {prefix}{path} cannot be fetched: {error}.") from error


def _urls(repository: Repository, commit: str, prefix: str) -> Mapping[str, str]:
    """Return the URLs in `.gitmodules` by path. Raises WorkspaceError for names and paths with `..`."""
    listed = repository.git.run("ls-tree", "-z", "-l", "--full-tree", valid_commit(commit), "--", _FILE)
    if not listed.startswith(b"100"):  # none, or a link
        return {}
    _, _, blob, size = listed.split(b"\t", 1)[0].split()
    if int(size) > _MODULES_BYTES:
        raise WorkspaceError(f"{prefix}{_FILE} is larger than {_MODULES_BYTES:,} bytes.")
    words = ("config", "--no-includes", f"--blob={blob.decode()}", "--null", "--list")
    try:
        output = repository.git.run(*words).decode("utf-8", "surrogateescape")
    except WorkspaceError as error:
        raise WorkspaceError(f"{prefix}{_FILE} cannot be read: {error}") from error
    return dict(_pairs(output.split("\0"), f"{prefix}{_FILE}"))


def _pairs(entries: Iterable[str], where: str) -> Iterator[tuple[str, str]]:
    values: dict[str, dict[str, str]] = {}
    for entry in entries:
        key, _, value = entry.partition("\n")
        if key.startswith("submodule.") and key.count(".") > 1:
            name, _, kind = key.removeprefix("submodule.").rpartition(".")
            values.setdefault(name, {})[kind] = value
    for name, one in values.items():
        path, url = one.get("path", ""), one.get("url", "")
        for word, text in (("name", name), ("path", path)):
            if ".." in re.split(r"[/\\]", text) or text.startswith(("/", "-")):
                raise WorkspaceError(f"{where} has a submodule with the {word} {text!r}, which is refused.")
        if path and url:
            yield path.rstrip("/"), url

"""Contents of Git LFS in a new workspace: fetched from the project's source, and put in place (M5).

They come from where the project was added from, and from nowhere else: a `.lfsconfig` of the repository has
no effect. A content is known by its SHA-256, so that what is put in place is what the commit names.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.files import open_file
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.git.files import blob_contents
from tasks_app.git.lfs import (
    POINTER,
    POINTER_BYTES,
    endpoint_of,
    endpoint_settings,
    git_directory_in,
    is_installed,
    is_kept,
    path_of,
    sha256_of,
)
from tasks_app.git.names import valid_commit
from tasks_app.git.program import Git, split_stream
from tasks_app.git.repository import Repository
from tasks_app.git.source import is_url

#: What git in the clone needs to see that a content is what its pointer names. Nothing is downloaded there.
FILTER = (
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge --skip -- %f"),
    ("filter.lfs.required", "true"),
)
SECONDS = 1800.0
_BATCH = 10_000
_SHOWN = 5


@dataclass(frozen=True)
class _Pointer:
    """A file of a commit that names the content `name`; `entry` is its mode and blob as git has them."""

    path: str
    name: str
    entry: str


@dataclass(frozen=True)
class LfsContents:
    """The contents of the project whose portal's copy is `repository`, which has them in its `lfs` folder.

    Those that the commit `needed_in` names must be there; others, which only an agent has named, may not.
    """

    repository: Repository
    source: str
    needed_in: str

    def put_into(self, workspace: Path, commit: str) -> None:
        """Replace the pointers in a new workspace by contents. Raises WorkspaceError if some are missing."""
        git = Git(workspace / ".git", work_tree=workspace)
        pointers = self._pointers(git, commit)
        self._fetch_missing(pointers, commit)
        replaced = [one for one in pointers if self._kept(one.name).is_file()]
        for one in replaced:
            _replace(workspace, one.path, self._kept(one.name))
        for setting in FILTER:
            git.run("config", *setting)
        # Without the pointers' sizes in the index git looks at the contents, and finds that they belong to
        # the pointers. With them, it takes each file for changed.
        lines = "".join(f"{one.entry}\t{one.path}\0" for one in replaced)
        git.run("update-index", "-z", "--index-info", stdin=_encoded(lines))

    def fetch_needed(self) -> str:
        """Fetch what `needed_in` names into the portal's copy; return what went wrong, or ""."""
        missing = {one.name for one in _pointers_in(self.repository, self.needed_in)}
        missing = {name for name in missing if not self._is_kept(name)}
        if not missing:
            return ""
        return self._download() if is_url(self.source) else self._copy(missing)

    def _is_kept(self, name: str) -> bool:
        return is_kept(self.repository.path, name)

    def _kept(self, name: str) -> Path:
        return path_of(self.repository.path, name)

    def _pointers(self, git: Git, commit: str) -> list[_Pointer]:
        """Return the pointers of a commit whose paths .gitattributes gives to Git LFS."""
        found = list(_pointers_in(self.repository, commit))
        if not found:
            return []
        asked = _encoded("\0".join(one.path for one in found))
        fields = git.run("check-attr", "-z", "--stdin", "filter", stdin=asked).split(b"\0")
        return [one for one, value in zip(found, fields[2::3], strict=False) if value == b"lfs"]

    def _fetch_missing(self, pointers: Sequence[_Pointer], commit: str) -> None:
        missing = {one.name for one in pointers if not self._is_kept(one.name)}
        if not missing:
            return
        needed = missing & {one.name for one in _pointers_in(self.repository, self.needed_in)}
        problem = self.repository.fetch_contents(commit)
        if problem is None:
            problem = self._download() if is_url(self.source) else self._copy(missing)
        left = [one.path for one in pointers if one.name in needed and not self._kept(one.name).is_file()]
        if left:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            raise WorkspaceError(
                f"The contents of Git LFS for {', '.join(left[:_SHOWN])}{more} cannot be fetched from"
                f" {self.source}: {problem or 'it does not have them.'}"
            )

    def _copy(self, names: set[str]) -> str:
        """Copy contents from a folder of this machine; return what went wrong, or ""."""
        own = git_directory_in(Path(self.source))
        for name in names:
            target = self._kept(name)
            inside = path_of(Path(), name).as_posix()
            with suppress(OSError), temporary_name(target) as fresh:
                with open_file(own, inside) as file, fresh.open("wb") as copy:
                    shutil.copyfileobj(file, copy)
                if sha256_of(fresh) == name:
                    move_file_into_place(fresh, target, below=self.repository.path)
        return ""

    def _download(self) -> str:
        """Fetch all contents of the commit that people have made; return what went wrong, or ""."""
        if not is_installed():
            return "git-lfs is not installed on this machine."
        url = endpoint_of(self.source) if self.source.startswith("https://") else self.source
        # Every setting that a .lfsconfig may have is given here, because that would be read otherwise.
        settings = (*endpoint_settings(url), "lfs.fetchinclude=", "lfs.fetchexclude=")
        git = Git(self.repository.path, settings=settings)
        words = ("lfs", "fetch", self.source, valid_commit(self.needed_in))
        done = git.finish_with_server(*words, timeout=SECONDS)
        return "" if done.code == 0 else done.messages[-500:] or f"git-lfs ended with {done.code}."


def _pointers_in(repository: Repository, commit: str) -> Iterator[_Pointer]:
    """Yield the files of a commit that look like pointers."""
    listed = repository.git.stream("ls-tree", "-r", "-l", "-z", "--full-tree", valid_commit(commit))
    small = (entry for entry in split_stream(listed, b"\0") if _is_small_file(entry))
    while batch := list(islice(small, _BATCH)):
        files = [_parse_tree_entry(entry) for entry in batch]
        contents = blob_contents(repository, (blob for _, _, blob in files))
        for path, mode, blob in files:
            if found := POINTER.match(contents.get(blob, b"")):
                yield _Pointer(path, found[1].decode(), f"{mode} {blob}")


def _parse_tree_entry(entry: bytes) -> tuple[str, str, str]:
    """Return path, mode and blob of an entry of `ls-tree -l`."""
    fields, _, path = entry.partition(b"\t")
    mode, _, blob, _ = fields.decode().split()
    return path.decode("utf-8", "surrogateescape"), mode, blob


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_small_file(entry: bytes) -> bool:
    mode, _, _, size = entry.partition(b"\t")[0].split()
    return mode.startswith(b"100") and int(size) in POINTER_BYTES


def _replace(workspace: Path, path: str, content: Path) -> None:
    """Put a content in the place of its pointer, in a workspace that no agent has seen."""
    target = workspace / path
    if target.is_symlink() or target.parent.resolve() != (workspace.resolve() / path).parent:
        raise WorkspaceError(f"{path} is behind a link.")
    mode = target.stat().st_mode
    target.unlink()
    shutil.copyfile(content, target)
    target.chmod(mode)

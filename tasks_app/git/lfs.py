"""Contents that Git LFS keeps outside of git: which a push must bring along, and bringing them.

The portal keeps the contents that tasks added beside its repository, see `recording.py`. What the source had
before is not there, and is not needed: the remote is asked to have it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tasks_app.core.errors import PublishingFailed, WorkspaceError
from tasks_app.core.files import open_file
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.git.files import blob_contents
from tasks_app.git.names import valid_commit
from tasks_app.git.program import Git, split_stream
from tasks_app.git.repository import Repository
from tasks_app.git.source import is_url

#: A pointer in the output of `git cat-file --batch`. Text that only looks so names nothing that is kept here.
POINTER = re.compile(
    rb"^version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})$", re.M
)
#: Bytes of a pointer: it has three short lines, and more with extensions.
POINTER_BYTES = range(100, 513)
#: Number of new objects that are looked at together: a task may add millions, and up to 512 bytes of each
#: are in memory.
_BATCH = 10_000
#: What a portal says to a worker host of a content that it does not have.
NOT_KEPT = "The portal does not have this content"
#: What git says of a pack, and a portal of a content, that is larger than it takes.
TOO_LARGE = "exceeds maximum allowed size"
#: Seconds for finding all contents, and for uploading them.
UPLOAD_SECONDS = 1800.0


def added_contents(repository: Repository, commit: str) -> list[str]:
    """Return the names of contents that the commit has, the source has not, and the portal keeps."""
    if not objects_of(repository.path).is_dir():
        return []
    git = repository.git
    new = (valid_commit(commit), "--not", "--glob=refs/source/*")
    words = ("rev-list", "--objects", "--no-object-names", *new)
    objects = split_stream(git.stream(*words, timeout=UPLOAD_SECONDS), b"\n")
    named = dict.fromkeys(_named_in(git, objects))
    return [name for name in named if path_of(repository.path, name).is_file()]


def all_named(repository: Repository) -> Iterator[str]:
    """Yield the names of contents in all objects of the repository, also in those that nothing names."""
    words = ("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
    objects = repository.git.stream(*words, timeout=UPLOAD_SECONDS)
    yield from _named_in(repository.git, split_stream(objects, b"\n"))


def _named_in(git: Git, objects: Iterator[bytes]) -> Iterator[str]:
    """Yield the names in all objects that may be pointers."""
    while batch := list(islice(objects, _BATCH)):
        wanted = b"".join(name + b"\n" for name in batch)
        listed = git.run("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=wanted)
        rows = (line.split() for line in listed.decode().splitlines())
        found = [name for name, kind, size in rows if kind == "blob" and int(size) in POINTER_BYTES]
        if found:
            small = "".join(f"{name}\n" for name in found).encode()
            contents = git.run("cat-file", "--batch", stdin=small)
            yield from (pointer[1].decode() for pointer in POINTER.finditer(contents))


def is_kept(git_directory: Path, name: str) -> bool:
    """Return whether a content is there, and let it count as used now, so that it is not removed."""
    path = path_of(git_directory, name)
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return path.is_file()
    return True


def path_of(git_directory: Path, name: str) -> Path:
    """Return where Git LFS keeps a content in a git directory."""
    return objects_of(git_directory) / name[:2] / name[2:4] / name


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the whole file, which is what Git LFS names a content by."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def objects_of(git_directory: Path) -> Path:
    """Return the folder in which Git LFS keeps all contents."""
    return git_directory / "lfs" / "objects"


def contents_in(git_directory: Path) -> list[Path]:
    """Return the files in which Git LFS keeps contents, sorted. An agent may have written them."""
    return sorted(objects_of(git_directory).glob("??/??/" + "?" * 64))


def copy_contents(repository: Repository, names: list[str], folder: Path) -> None:
    """Copy contents to a repository in a folder, where Git LFS looks for them. Raises PublishingFailed."""
    own = git_directory_in(folder)
    try:
        for name in names:
            target, kept = path_of(own, name), path_of(repository.path, name)
            # After a power cut or a full disk, a part of the content may be there.
            if target.exists() and target.stat().st_size == kept.stat().st_size:
                continue
            with temporary_name(target) as fresh:
                shutil.copyfile(kept, fresh)
                move_file_into_place(fresh, target, below=own)
    except OSError as error:
        raise PublishingFailed(
            f"The files of Git LFS cannot be written to {folder}: {error.strerror}. Nothing was published."
        ) from None


def git_directory_in(folder: Path) -> Path:
    """Return the git directory of a repository in a folder, which itself is that of a bare one."""
    return folder / ".git" if (folder / ".git").is_dir() else folder


def endpoint_of(url: str) -> str:
    """Return the endpoint of Git LFS of a repository at an https URL."""
    root = url.rstrip("/").removesuffix(".git")
    return f"{root}.git/info/lfs"


def endpoint_settings(endpoint: str) -> tuple[str, ...]:
    """Return git's settings for exchanging contents with an endpoint: no file of the repository names it."""
    return (
        f"lfs.url={endpoint}",
        # Git LFS prefers this one, and would read it from the `.lfsconfig` of a commit.
        f"lfs.pushurl={endpoint}",
        f"lfs.{endpoint}.locksverify=false",
        "lfs.repositoryformatversion=0",
        "lfs.activitytimeout=30",
        "lfs.transfer.maxretries=3",
    )


def is_installed() -> bool:
    return shutil.which("git-lfs") is not None


# Contents of Git LFS in a new workspace: fetched from the project's source, and put in place (M5).
#
# They come from where the project was added from, and from nowhere else: a `.lfsconfig` of the repository has
# no effect. A content is known by its SHA-256, so that what is put in place is what the commit names.


#: What git in the clone needs to see that a content is what its pointer names. Nothing is downloaded there.
FILTER = (
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge --skip -- %f"),
    ("filter.lfs.required", "true"),
)
SECONDS = 1800.0
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
            shown = ", ".join(left[:_SHOWN])
            if len(left) > _SHOWN:
                shown += f" and {len(left) - _SHOWN} more"
            raise WorkspaceError(
                f"The contents of Git LFS for {shown} cannot be fetched from"
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
        url = self.source
        if url.startswith("https://"):
            url = endpoint_of(url)
        # Every setting that a .lfsconfig may have is given here, because that would be read otherwise.
        settings = (*endpoint_settings(url), "lfs.fetchinclude=", "lfs.fetchexclude=")
        git = Git(self.repository.path, settings=settings)
        words = ("lfs", "fetch", self.source, valid_commit(self.needed_in))
        done = git.finish_with_server(*words, timeout=SECONDS)
        if done.code == 0:
            return ""
        return done.messages[-500:] or f"git-lfs ended with {done.code}."


def _pointers_in(repository: Repository, commit: str) -> Iterator[_Pointer]:
    """Yield the files of a commit that look like pointers."""
    listed = repository.git.stream("ls-tree", "-r", "-l", "-z", "--full-tree", valid_commit(commit))
    entries = map(_parse_tree_entry, split_stream(listed, b"\0"))
    small = (one for one in entries if one[1].startswith("100") and int(one[3]) in POINTER_BYTES)
    while batch := list(islice(small, _BATCH)):
        contents = blob_contents(repository, (blob for _, _, blob, _ in batch))
        for path, mode, blob, _ in batch:
            if found := POINTER.match(contents.get(blob, b"")):
                yield _Pointer(path, found[1].decode(), f"{mode} {blob}")


def _parse_tree_entry(entry: bytes) -> tuple[str, str, str, str]:
    """Return path, mode, blob and size of an entry of `ls-tree -l`; the size of a submodule is `-`."""
    fields, _, path = entry.partition(b"\t")
    mode, _, blob, size = fields.decode().split()
    return path.decode("utf-8", "surrogateescape"), mode, blob, size


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _replace(workspace: Path, path: str, content: Path) -> None:
    """Put a content in the place of its pointer, in a workspace that no agent has seen."""
    target = workspace / path
    if target.is_symlink() or target.parent.resolve() != (workspace.resolve() / path).parent:
        raise WorkspaceError(f"{path} is behind a link.")
    mode = target.stat().st_mode
    target.unlink()
    shutil.copyfile(content, target)
    target.chmod(mode)

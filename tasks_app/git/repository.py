"""The portal's own bare repository of a project: the only place where the portal runs git on code."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO

from tasks_app.core.errors import BranchMissing, RepositoryDamaged, WorkspaceError
from tasks_app.git import repairing
from tasks_app.git.durable import move_into_place, sync_folders, sync_tree
from tasks_app.git.faults import damage_marker, is_damage, is_lock_conflict
from tasks_app.git.names import valid_branch, valid_commit
from tasks_app.git.program import DURABLE, NETWORK_SECONDS, Git, init
from tasks_app.git.source import upload_pack

#: How long a fetch waits for another one of the same repository: a person may be waiting for it.
LOCK_SECONDS = 60.0
_LOCK_POLL_SECONDS = 0.1
#: Seconds after which a new name in a folder has surely been written to the disk.
_UNSYNCED_SECONDS = 3600.0
#: Maximum number of packs that are not repacked; git searches each of them.
PACKS = 50
_SUBJECT = 200
#: A file in the repository with the boot id for which it was found intact. A power cut changes the boot id.
_CHECKED = "checked-after-boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class CommitSummary:
    """The facts by which people recognise a commit."""

    commit: str
    subject: str
    author: str
    at: datetime


@dataclass(frozen=True)
class Fetched:
    """The repairs of a fetch.

    It `made` the repository if it was missing, and moved the `removed` parts out of it that could not be
    read. Then recorded work that the source does not have may be lost.
    """

    made: bool = False
    removed: tuple[str, ...] = ()

    @property
    def repaired(self) -> bool:
        return self.made or bool(self.removed)


@dataclass(frozen=True)
class Repository:
    """A bare repository at `path` that follows `source` (an absolute path or a URL).

    Its refs: `refs/source/*` are the branches of the source, `refs/cat-herder/BRANCH/LABEL` the snapshots of
    a workspace, `refs/cat-herder-base/BRANCH` the commit where a workspace began, and `refs/heads/BRANCH`
    what people may fetch. `name` is the project's name, for messages; `settings` are git's for fetching.

    Everything that a method writes is on the disk when it returns. If something cannot be read, it raises
    RepositoryDamaged, and the next fetch repairs the repository.
    """

    path: Path
    source: str
    name: str = ""
    settings: tuple[str, ...] = ()

    @property
    def git(self) -> Git:
        return Git(self.path, owner=self.name or self.source)

    @property
    def lock_file(self) -> Path:
        """The lock of the process that fetches."""
        return self.path.with_name(self.path.name + ".lock")

    @property
    def _refs_lock(self) -> Path:
        """The lock of the process that sets references of tasks. A fetch does not change these."""
        return self.path.with_name(f"{self.path.name}.refs-lock")

    def fetch(self, *, thorough: bool = False) -> Fetched:
        """Update `refs/source/*` from the source, and create the repository if it is missing.

        A damaged repository is repaired with what the source has. It is examined if damage was found before,
        if the machine was restarted, and with `thorough` always. Waits up to LOCK_SECONDS while another
        process fetches. Raises WorkspaceError if that lasts longer, or if the source cannot be read.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.exclusive():
                return self._fetch_and_repair(thorough=thorough)
        except OSError as error:
            raise WorkspaceError(
                f"The portal's copy of the repository of {self.name or self.source} cannot be written: "
                f"{error.filename or self.path}: {error.strerror}"
            ) from error

    def _fetch_and_repair(self, *, thorough: bool) -> Fetched:
        removed = self._clear_damage_if_any(thorough=thorough)
        made = self._make_if_missing()
        try:
            self._fetch(*(["--refetch"] if removed else []))
        except WorkspaceError as error:
            if not is_damage(str(error)) or not repairing.problems(self.path):
                raise  # the source cannot be read
            removed += self._clear_damage()
            made = self._make_if_missing() or made
            self._fetch("--refetch")
        if removed:
            with self._writing_refs():
                removed += repairing.drop_incomplete_refs(self.path)
        damage_marker(self.path).unlink(missing_ok=True)
        if _BOOT_ID.exists() and self._machine_was_restarted():
            (self.path / _CHECKED).write_text(_BOOT_ID.read_text())
        return Fetched(made, tuple(dict.fromkeys(removed)))

    def related_files(self) -> list[Path]:
        """Return the files beside the repository that belong to it: locks, damage marker, damaged parts."""
        files = (self.lock_file, self._refs_lock, damage_marker(self.path))
        return [
            *(path for path in files if path.exists()),
            *sorted(self.path.parent.glob(f"{self.path.name}.damaged-*")),
        ]

    def problems(self) -> list[str]:
        """Return all faults of the repository, each in a sentence. Reads the whole repository."""
        return repairing.problems(self.path)

    def _fetch(self, *options: str) -> None:
        words = (
            "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", *options,
            "--no-recurse-submodules", "--update-shallow", *upload_pack(self.source), "--",
            self.source, "+refs/heads/*:refs/source/*",
        )  # fmt: skip
        locks = (self.path / "packed-refs.lock", *(self.path / "refs/source").rglob("*.lock"))
        # Without the owner: the damage that git finds may be in the source.
        git = Git(self.path, settings=self.settings)
        self._without_stale_locks(locks, lambda: git.run(*words, timeout=NETWORK_SECONDS))
        for folder in ("objects", "refs"):
            sync_tree(self.path / folder, changed_within=_UNSYNCED_SECONDS)

    def _clear_damage_if_any(self, *, thorough: bool) -> list[str]:
        """Examine the repository if there is a reason. Move away what cannot be read and return its paths."""
        if not self.path.exists() or not self._seems_damaged(thorough=thorough):
            return []
        if not repairing.problems(self.path):
            return []
        return self._clear_damage() or ["objects"]

    def _clear_damage(self) -> list[str]:
        with self._writing_refs():
            return repairing.clear_damage(self.path)

    def _seems_damaged(self, *, thorough: bool) -> bool:
        """Examine the repository only as closely as necessary: reading a large one takes minutes."""
        if damage_marker(self.path).exists() or not (self.path / "HEAD").is_file():
            return True
        if self._machine_was_restarted():
            return repairing.looks_damaged(self.path)
        return thorough and not repairing.is_readable(self.path)

    def _machine_was_restarted(self) -> bool:
        """Return whether the machine was restarted since the last check. False if this is not Linux."""
        try:
            return (self.path / _CHECKED).read_text() != _BOOT_ID.read_text()
        except OSError:
            return _BOOT_ID.exists()

    def head(self, branch: str) -> str:
        """Return the commit of the source's `branch`, as of the last fetch."""
        ref = f"refs/source/{valid_branch(branch)}"
        try:
            return self.commit(ref)
        except RepositoryDamaged:
            raise
        except WorkspaceError as error:
            self.git.run("for-each-ref", "--format=%(objecttype)", ref)  # its commit may be missing
            if repairing.has_bad_references(self.path):
                raise self.git.damage("a reference is empty or unreadable") from error
            raise BranchMissing(f"{self.source} has no branch {branch}. It may have been renamed.") from error

    def commit(self, name: str) -> str:
        """Return the full id of the commit that `name` stands for. Raises WorkspaceError if it is missing."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        try:
            return self.git.line(*words)
        except RepositoryDamaged:
            raise
        except WorkspaceError as error:
            raise WorkspaceError(
                f"The portal's copy of the repository of {self.name or self.source} has no commit {name}."
            ) from error

    def restore_refs(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Set missing references whose commit exists with its whole history. Return those that are lost."""
        lost = {}
        for ref, commit in wanted.items():
            if self.refs(ref):
                continue
            try:
                self.git.run("rev-list", "--objects", "--quiet", valid_commit(commit), "--not", "--all")
            except WorkspaceError:
                lost[ref] = commit
            else:
                self.set_refs(commit, ref)
        return lost

    def branches(self) -> tuple[str, ...]:
        """Return the branches of the source, as of the last fetch."""
        return tuple(
            self.git.line("for-each-ref", "--format=%(refname:lstrip=2)", "refs/source/").splitlines()
        )

    def branches_like(self, start: str) -> frozenset[str]:
        """Return the branches here or in the source that begin with `start`, and the folders of such."""
        patterns = (f"refs/{kind}/{start}{end}" for kind in ("heads", "source") for end in ("*", "*/**"))
        names = self.git.line("for-each-ref", "--format=%(refname:lstrip=2)", *patterns).splitlines()
        folders = (str(folder) for name in names for folder in PurePosixPath(name).parents)
        return frozenset((*names, *folders))

    def summary(self, commit: str) -> CommitSummary:
        """Describe the commit. Raises WorkspaceError if it is missing."""
        words = ("show", "-s", "--no-show-signature", "--format=%cI%x00%an%x00%s", valid_commit(commit), "--")
        at, author, subject = self.git.line(*words).split("\0", 2)
        return CommitSummary(commit, subject[:_SUBJECT], author[:_SUBJECT], datetime.fromisoformat(at))

    def has(self, commit: str) -> bool:
        try:
            self.git.run("cat-file", "-e", f"{commit}^{{commit}}")
        except WorkspaceError:
            return False
        return True

    def set_refs(self, commit: str, *refs: str) -> None:
        """Let all of `refs` name `commit`, or none."""
        orders = "".join(f"update {ref} {commit}\n" for ref in refs)
        with self._writing_refs():
            self._without_stale_locks(
                [self.path / f"{ref}.lock" for ref in refs],
                lambda: self.git.run("update-ref", "--stdin", stdin=orders.encode()),
            )
        # git syncs only files, but the names of new packs and references are in their folders.
        folders = {
            folder for ref in refs for folder in (self.path / ref).parents if folder.is_relative_to(self.path)
        }
        sync_folders({*folders, self.path / "objects", self.path / "objects/pack"})

    def remove_refs(self, folder: str) -> None:
        """Remove the reference of this name, or, if it ends with a slash, all references below it."""
        names = self.git.line("for-each-ref", "--format=%(refname)", folder).splitlines()
        if names:
            orders = "".join(f"delete {name}\n" for name in names)
            with self._writing_refs():
                self.git.run("update-ref", "--stdin", stdin=orders.encode())

    @contextlib.contextmanager
    def held_for(self, key: tuple[int, int], *, branch: str) -> Iterator[None]:
        """Prepare for work on the task of this lease. Only a mirror must: it fetches, and pushes later."""
        yield

    def fetch_contents(self, commit: str) -> str | None:
        """Fetch the contents of Git LFS that a commit names; return what went wrong, or "".

        None if they come from the project's source. Only a mirror asks its portal.
        """
        return None

    def _without_stale_locks(self, locks: Iterable[Path], write: Callable[[], object]) -> None:
        """Call `write`. If only a lock file prevents it, remove `locks` and call it once more.

        git's locks do not say who holds them. The caller holds a lock of the portal that all its writers
        take, and that the kernel releases when one is killed. So these locks belong to nobody.
        """
        try:
            write()
        except WorkspaceError as error:
            if not is_lock_conflict(str(error)):
                raise
            for lock in locks:
                lock.unlink(missing_ok=True)
            write()

    @contextlib.contextmanager
    def _writing_refs(self) -> Iterator[None]:
        """Let only one process of the portal write references at a time. Each needs milliseconds."""
        with self._refs_lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def tree(self, commit: str) -> str:
        """Return the id of the commit's files: two commits with the same files have the same id."""
        return self.git.line("rev-parse", "--verify", "--quiet", f"{valid_commit(commit)}^{{tree}}")

    def with_entry_of(
        self, commit: str, name: str, base: str, *, author: tuple[str, str], message: str
    ) -> str:
        """Make a commit with the files of `commit`, but with the top-level file `name` as it is in `base`.

        It replaces `commit` if the portal made that with the same message, otherwise it follows it.
        """
        others = [entry for entry in self._top_level_entries(commit) if _name_in(entry) != name]
        before = [entry for entry in self._top_level_entries(base) if _name_in(entry) == name]
        entries = b"".join(entry + b"\0" for entry in others + before)
        tree = self.git.run("mktree", "-z", stdin=entries).decode().strip()
        parents = self.parents_of_own(commit, author=author, message=message)
        identity = ("-c", f"user.name={author[0]}", "-c", f"user.email={author[1]}")
        options = [word for parent in ([commit] if parents is None else parents) for word in ("-p", parent)]
        text = f"{message}\n".encode(errors="replace")
        made = self.git.run(*identity, "commit-tree", *options, tree, stdin=text).decode().strip()
        sync_folders({self.path / "objects" / one[:2] for one in (tree, made)})
        return made

    def parents_of_own(self, commit: str, *, author: tuple[str, str], message: str) -> list[str] | None:
        """Return the parents of a commit that the portal made with this message; None for another one."""
        words = ("show", "-s", "--no-show-signature", "--format=%an%x00%ae%x00%P%x00%B")
        name, email, parents, text = self.git.line(*words, valid_commit(commit), "--").split("\0", 3)
        if (name, email, text.strip()) == (*author, message.strip()):
            return parents.split()
        return None

    def _top_level_entries(self, commit: str) -> list[bytes]:
        listed = self.git.run("ls-tree", "-z", "--full-tree", valid_commit(commit))
        return [entry for entry in listed.split(b"\0") if entry]

    def refs(self, *patterns: str) -> tuple[str, ...]:
        """Return the commits of all refs that match `patterns`."""
        return tuple(self.git.line("for-each-ref", "--format=%(objectname)", *patterns).split())

    def tidy(self) -> bool:
        """Combine packs and refs if there are many. Return whether that was done. Raises WorkspaceError.

        Each recording leaves a pack and a file for its ref. Others may read and record meanwhile, and nothing
        is deleted, not even objects that no ref names yet.
        """
        if len(list(self.path.glob("objects/pack/*.pack"))) <= PACKS:
            return False
        with self.lock_file.open("w") as lock:
            if not _try_lock(lock):
                return False  # another process fetches or tidies; there will be another time
            self.git.run("repack", "--geometric=2", "-d", "--quiet")
            sync_tree(self.path / "objects")
            with self._writing_refs():
                self.git.run("pack-refs", "--all")
            sync_tree(self.path / "refs")
        return True

    def _make_if_missing(self) -> bool:
        """Make the repository unless it exists. Return whether it was made."""
        if self.path.exists():
            return False
        # Made in another folder and then moved, so that the repository at `path` is always complete.
        fresh = self.path.with_name(self.path.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        init(fresh, "--bare", settings=DURABLE)  # also for people who use git in it by hand
        move_into_place(fresh, self.path)
        return True

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let nobody else fetch or tidy; recordings go on. Raises WorkspaceError after LOCK_SECONDS."""
        with self.locked_within(LOCK_SECONDS) as locked:
            if not locked:
                raise WorkspaceError(
                    f"Somebody else is fetching {self.source} and has not ended within "
                    f"{LOCK_SECONDS:g} seconds; try again later."
                )
            yield

    @contextlib.contextmanager
    def locked_within(self, seconds: float) -> Iterator[bool]:
        """Do as `exclusive`, but yield False if somebody else has the lock for longer than `seconds`."""
        with self.lock_file.open("w") as lock:
            until = time.monotonic() + seconds
            while not (locked := _try_lock(lock)) and time.monotonic() < until:
                time.sleep(_LOCK_POLL_SECONDS)
            yield locked


def _name_in(entry: bytes) -> str:
    """Return the name in `100644 blob 1f2e…<TAB>name`."""
    return entry.partition(b"\t")[2].decode("utf-8", "surrogateescape")


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""The portal's own bare repository of a project: the only place where the portal runs git on code."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from tasks_app.core.errors import RepositoryDamaged, WorkspaceError
from tasks_app.git import repairing
from tasks_app.git.durable import move_into_place, sync_folders, sync_tree
from tasks_app.git.program import (
    DURABLE,
    NETWORK_SECONDS,
    Git,
    damage_note,
    tells_of_damage,
    tells_of_lock,
    valid_branch,
    valid_commit,
)
from tasks_app.git.source import upload_pack

#: How long a fetch waits for another of the same repository: a person may be waiting for it.
LOCK_SECONDS = 60.0
_LOCK_LOOKS_EVERY = 0.1
#: So many packs are left as they are; git looks through each of them.
PACKS = 50
_SUBJECT = 200
#: In the repository: the start of the machine after which it was found sound. A power cut brings another one.
_CHECKED = "checked-after-boot"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class CommitFacts:
    """A commit as people recognise it."""

    commit: str
    subject: str
    author: str
    at: datetime


@dataclass(frozen=True)
class Fetched:
    """What a fetch had to do besides: it `made` the repository, which was not there, or moved `removed` out
    of it because it could not be read. Then recorded work may be gone that the source does not have."""

    made: bool = False
    removed: tuple[str, ...] = ()

    @property
    def repaired(self) -> bool:
        return self.made or bool(self.removed)


@dataclass(frozen=True)
class Repository:
    """A bare repository at `path` that follows `source` (an absolute path or a URL).

    Its refs: `refs/source/*` are the branches of the source, `refs/cat-herder/BRANCH/LABEL` the
    snapshots of a workspace, `refs/cat-herder-base/BRANCH` where a workspace began, and
    `refs/heads/BRANCH` what a person may fetch. `name` is the project's, for messages.

    What is written is on the disk when the method returns. What cannot be read raises RepositoryDamaged, and
    the next fetch repairs it.
    """

    path: Path
    source: str
    name: str = ""

    @property
    def git(self) -> Git:
        return Git(self.path, owner=self.name or self.source)

    @property
    def lock_file(self) -> Path:
        """Held by the one process that fetches."""
        return self.path.with_name(self.path.name + ".lock")

    @property
    def _refs_lock(self) -> Path:
        """Held by the one process that sets references of tasks; these a fetch does not touch."""
        return self.path.with_name(f"{self.path.name}.refs-lock")

    def fetch(self, *, thorough: bool = False) -> Fetched:
        """Bring `refs/source/*` up to date with the source, creating the repository if need be.

        A repository that is damaged is repaired with what the source has. Damage is looked for after some was
        met, and after the machine was started anew; with `thorough` always. Waits up to LOCK_SECONDS while
        another process does the same. Raises WorkspaceError if that lasts longer, or if the source cannot
        be read.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._only_one():
                return self._fetch_and_repair(thorough=thorough)
        except OSError as error:
            raise WorkspaceError(
                f"The portal's copy of the repository of {self.name or self.source} cannot be written: "
                f"{error.filename or self.path}: {error.strerror}"
            ) from error

    def _fetch_and_repair(self, *, thorough: bool) -> Fetched:
        removed = self._without_damage(thorough=thorough)
        made = self._ensure()
        try:
            self._fetch(*(["--refetch"] if removed else []))
        except WorkspaceError as error:
            if not tells_of_damage(str(error)) or not repairing.problems(self.path):
                raise  # the source cannot be read
            removed += self._clear_damage()
            made = self._ensure() or made
            self._fetch("--refetch")
        if removed:
            with self._writing_refs():
                removed += repairing.drop_incomplete_refs(self.path)
        self._note_sound()
        return Fetched(made, tuple(dict.fromkeys(removed)))

    def besides(self) -> list[Path]:
        """What lies beside the repository because of it: locks, a note of damage, what was moved aside."""
        files = (self.lock_file, self._refs_lock, damage_note(self.path))
        return [
            *(path for path in files if path.exists()),
            *sorted(self.path.parent.glob(f"{self.path.name}.damaged-*")),
        ]

    def problems(self) -> list[str]:
        """Everything that is wrong with it, each in a sentence; empty if it is sound. Reads all of it."""
        return repairing.problems(self.path)

    def _fetch(self, *options: str) -> None:
        words = (
            "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", *options,
            "--no-recurse-submodules", "--update-shallow", *upload_pack(self.source), "--",
            self.source, "+refs/heads/*:refs/source/*",
        )  # fmt: skip
        locks = (self.path / "packed-refs.lock", *(self.path / "refs/source").rglob("*.lock"))
        # Without the owner: what git finds damaged may be the source.
        git = Git(self.path)
        self._without_stale_locks(locks, lambda: git.run(*words, timeout=NETWORK_SECONDS))
        for place in ("objects", "refs"):
            sync_tree(self.path / place)

    def _without_damage(self, *, thorough: bool) -> list[str]:
        """Move aside what cannot be read, if there is reason to look; what it was."""
        if not self.path.exists() or not self._seems_damaged(thorough=thorough):
            return []
        if not repairing.problems(self.path):
            return []
        return self._clear_damage() or ["objects"]

    def _clear_damage(self) -> list[str]:
        with self._writing_refs():
            return repairing.clear_damage(self.path)

    def _seems_damaged(self, *, thorough: bool) -> bool:
        """Look as closely as there is reason to: a large repository takes minutes to be read as a whole."""
        if damage_note(self.path).exists() or not (self.path / "HEAD").is_file():
            return True
        if self._machine_was_started():
            return repairing.looks_damaged(self.path)
        return thorough and not repairing.is_readable(self.path)

    def _machine_was_started(self) -> bool:
        """Whether that was since the repository was last found sound. Unknown on systems other than Linux."""
        try:
            return (self.path / _CHECKED).read_text() != _BOOT.read_text()
        except OSError:
            return _BOOT.exists()

    def _note_sound(self) -> None:
        damage_note(self.path).unlink(missing_ok=True)
        if _BOOT.exists() and self._machine_was_started():
            (self.path / _CHECKED).write_text(_BOOT.read_text())

    def head(self, branch: str) -> str:
        """The commit of the source's `branch`, as of the last fetch."""
        ref = f"refs/source/{valid_branch(branch)}"
        try:
            return self.commit(ref)
        except RepositoryDamaged:
            raise
        except WorkspaceError as error:
            self.git.run("for-each-ref", "--format=%(objecttype)", ref)  # its commit may be missing
            if repairing.has_bad_references(self.path):
                raise self.git.damaged("a reference is empty or unreadable") from error
            raise WorkspaceError(f"{self.source} has no branch {branch}.") from error

    def commit(self, name: str) -> str:
        """The full id of the commit that `name` means. Raises WorkspaceError if it is not here."""
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
        """Set those references that are missing and whose commit is here with its whole history.

        The others are returned: their commits are lost.
        """
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
        """The branches of the source, as of the last fetch."""
        return tuple(
            self.git.line("for-each-ref", "--format=%(refname:lstrip=2)", "refs/source/").splitlines()
        )

    def facts(self, commit: str) -> CommitFacts:
        """Raises WorkspaceError if the commit is not here."""
        words = ("show", "-s", "--no-show-signature", "--format=%cI%x00%an%x00%s", valid_commit(commit), "--")
        at, author, subject = self.git.line(*words).split("\0", 2)
        return CommitFacts(commit, subject[:_SUBJECT], author[:_SUBJECT], datetime.fromisoformat(at))

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
            self._without_stale_locks([self.path / f"{ref}.lock" for ref in refs], lambda: self._set(orders))
        # git syncs files alone: the names of new packs and references are in their folders.
        folders = {
            folder for ref in refs for folder in (self.path / ref).parents if folder.is_relative_to(self.path)
        }
        sync_folders({*folders, self.path / "objects", self.path / "objects/pack"})

    def _set(self, orders: str) -> None:
        self.git.run("update-ref", "--stdin", stdin=orders.encode())

    def _without_stale_locks(self, locks: Iterable[Path], write: Callable[[], object]) -> None:
        """Do `write`; if only a lock file is in its way, once more without `locks`.

        git's locks do not say whose they are. The caller holds a lock of the portal's that each of its
        writers takes, which the kernel releases when one is killed; so these belong to nobody.
        """
        try:
            write()
        except WorkspaceError as error:
            if not tells_of_lock(str(error)):
                raise
            for lock in locks:
                lock.unlink(missing_ok=True)
            write()

    @contextlib.contextmanager
    def _writing_refs(self) -> Iterator[None]:
        """One process of the portal at a time; each needs milliseconds."""
        with self._refs_lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def tree(self, commit: str) -> str:
        """The id of what `commit` holds: two commits with the same files have the same."""
        return self.git.line("rev-parse", "--verify", "--quiet", f"{valid_commit(commit)}^{{tree}}")

    def with_entry_of(
        self, commit: str, name: str, base: str, *, author: tuple[str, str], message: str
    ) -> str:
        """A commit with the files of `commit`, but the top-level file `name` as it is in `base`, or absent.

        It takes the place of `commit` if the portal made that with this very message, else it follows it.
        """
        others = [entry for entry in self._top_level(commit) if _name_in(entry) != name]
        before = [entry for entry in self._top_level(base) if _name_in(entry) == name]
        listed = b"".join(entry + b"\0" for entry in others + before)
        tree = self.git.run("mktree", "-z", stdin=listed).decode().strip()
        person, email = author
        words = (
            "show",
            "-s",
            "--no-show-signature",
            "--format=%an%x00%ae%x00%P%x00%B",
            valid_commit(commit),
            "--",
        )
        made_by, address, parents, said = self.git.line(*words).split("\0", 3)
        is_own = (made_by, address, said.strip()) == (person, email, message.strip())
        above = parents.split() if is_own else [commit]
        identity = ("-c", f"user.name={person}", "-c", f"user.email={email}")
        order = [word for parent in above for word in ("-p", parent)]
        text = f"{message}\n".encode(errors="replace")
        made = self.git.run(*identity, "commit-tree", *order, tree, stdin=text).decode().strip()
        sync_folders({self.path / "objects" / one[:2] for one in (tree, made)})
        return made

    def _top_level(self, commit: str) -> list[bytes]:
        listed = self.git.run("ls-tree", "-z", "--full-tree", valid_commit(commit))
        return [entry for entry in listed.split(b"\0") if entry]

    def refs(self, *patterns: str) -> tuple[str, ...]:
        """The commits of all refs under `patterns`."""
        return tuple(self.git.line("for-each-ref", "--format=%(objectname)", *patterns).split())

    def tidy(self) -> bool:
        """Put packs and refs together if there are many, and whether that was done.

        Each recording leaves a pack and a file for its ref. Others may read and record meanwhile, and nothing
        is thrown away, not even what no ref names yet. Raises WorkspaceError.
        """
        if len(list(self.path.glob("objects/pack/*.pack"))) <= PACKS:
            return False
        with self.lock_file.open("w") as lock:
            if not _locked(lock):
                return False  # somebody fetches, or does this already; there will be another time
            self.git.run("repack", "--geometric=2", "-d", "--quiet")
            sync_tree(self.path / "objects")
            with self._writing_refs():
                self.git.run("pack-refs", "--all")
            sync_tree(self.path / "refs")
        return True

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Keep out whoever fetches or puts packs together; recordings go on. Raises WorkspaceError."""
        with self._only_one():
            yield

    def _ensure(self) -> bool:
        """Whether the repository had to be made."""
        if self.path.exists():
            return False
        # Made beside and moved, so that what stands at `path` is always whole.
        fresh = self.path.with_name(self.path.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        Git().run("init", "--quiet", "--bare", "--template=", "--", str(fresh))
        for setting in DURABLE:  # also for who works in it by hand
            Git(fresh).run("config", *setting.split("=", 1))
        move_into_place(fresh, self.path)
        return True

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        with self.lock_file.open("w") as lock:
            until = time.monotonic() + LOCK_SECONDS
            while not _locked(lock):
                if time.monotonic() >= until:
                    raise WorkspaceError(
                        f"Somebody else is fetching {self.source} and has not ended within "
                        f"{LOCK_SECONDS:g} seconds; try again later."
                    )
                time.sleep(_LOCK_LOOKS_EVERY)
            yield


def _name_in(entry: bytes) -> str:
    """From `100644 blob 1f2e…<TAB>name`."""
    return entry.partition(b"\t")[2].decode("utf-8", "surrogateescape")


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

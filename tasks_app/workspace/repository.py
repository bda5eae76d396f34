"""The portal's own bare repository of a project: the only place where the portal runs git on code."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

from tasks_app.errors import WorkspaceError
from tasks_app.workspace.git import NETWORK_SECONDS, Git, valid_branch, valid_commit
from tasks_app.workspace.source import upload_pack

#: How long a fetch waits for another of the same repository: a person may be waiting for it.
LOCK_SECONDS = 60.0
_LOCK_LOOKS_EVERY = 0.1
#: So many packs are left as they are; git looks through each of them.
PACKS = 50
_SUBJECT = 200


@dataclass(frozen=True)
class CommitFacts:
    """A commit as people recognise it."""

    commit: str
    subject: str
    author: str
    at: datetime


@dataclass(frozen=True)
class Repository:
    """A bare repository at `path` that follows `source` (an absolute path or a URL).

    Its refs: `refs/source/*` are the branches of the source, `refs/cat-herder/BRANCH/LABEL` the
    snapshots of a workspace, `refs/cat-herder-base/BRANCH` where a workspace began, and
    `refs/heads/BRANCH` what a person may fetch.
    """

    path: Path
    source: str

    @property
    def git(self) -> Git:
        return Git(self.path)

    @property
    def lock_file(self) -> Path:
        """Held by the one process that fetches."""
        return self.path.with_name(self.path.name + ".lock")

    def fetch(self) -> None:
        """Bring `refs/source/*` up to date with the source, creating the repository if need be.

        Waits up to LOCK_SECONDS while another process does the same. Raises WorkspaceError if that lasts
        longer, or if the source cannot be read.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._only_one():
            self._ensure()
            self.git.run(
                "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head",
                "--no-recurse-submodules", *upload_pack(self.source), "--",
                self.source, "+refs/heads/*:refs/source/*", timeout=NETWORK_SECONDS,
            )  # fmt: skip

    def head(self, branch: str) -> str:
        """The commit of the source's `branch`, as of the last fetch."""
        try:
            return self.commit(f"refs/source/{valid_branch(branch)}")
        except WorkspaceError as error:
            raise WorkspaceError(f"{self.source} has no branch {branch}.") from error

    def commit(self, name: str) -> str:
        """The full id of the commit that `name` means. Raises WorkspaceError if it is not here."""
        return self.git.line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")

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
        self.git.run("update-ref", "--stdin", stdin=orders.encode())

    def tree(self, commit: str) -> str:
        """The id of what `commit` holds: two commits with the same files have the same."""
        return self.git.line("rev-parse", "--verify", "--quiet", f"{valid_commit(commit)}^{{tree}}")

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
            self.git.run("pack-refs", "--all")
        return True

    def _ensure(self) -> None:
        if self.path.exists():
            return
        # Made beside and moved, so that what stands at `path` is always whole.
        fresh = self.path.with_name(self.path.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        Git().run("init", "--quiet", "--bare", "--template=", "--", str(fresh))
        fresh.replace(self.path)

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


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

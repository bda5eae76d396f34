"""The portal's own bare repository of a project: the only place where the portal runs git on code."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks_app.errors import WorkspaceError
from tasks_app.workspace.git import NETWORK_SECONDS, Git, valid_branch
from tasks_app.workspace.source import upload_pack


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

        Waits while another process does the same. Raises WorkspaceError if the source cannot be read.
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

    def has(self, commit: str) -> bool:
        try:
            self.git.run("cat-file", "-e", f"{commit}^{{commit}}")
        except WorkspaceError:
            return False
        return True

    def set_ref(self, ref: str, commit: str) -> None:
        self.git.run("update-ref", "--end-of-options", ref, commit)

    def refs(self, pattern: str) -> tuple[str, ...]:
        """The commits of all refs under `pattern`."""
        return tuple(self.git.line("for-each-ref", "--format=%(objectname)", pattern).split())

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
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

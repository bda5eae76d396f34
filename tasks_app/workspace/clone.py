"""A task's clone: the agent's to do with as it likes, so the portal never runs git in it.

What must run there runs in the jail, and what comes out is data: one pack of objects, which the
portal checks and takes into its own repository. The portal does not even fetch from the clone: its
`.git` may by now be a link to another task's, which only the jail cannot follow.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tasks_app.errors import BadInput, WorkspaceError
from tasks_app.jail import Jail, run
from tasks_app.workspace.git import Git, valid_branch, valid_commit
from tasks_app.workspace.repository import Repository

_AUTHOR = ("Cat Herder", "cat-herder@localhost")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]|\.(?!\.|$|lock$)){0,99}")
_SNAPSHOT_SECONDS = 600.0
_PACK_BYTES = 2 * 1024**3
# Hooks of the clone are the agent's; HEAD is moved and the index follows, no file is touched.
_COMMIT = (
    'set -eu; git -c core.hooksPath=/dev/null update-ref HEAD "$1"; '
    "git -c core.hooksPath=/dev/null -c core.fsmonitor=false reset --quiet"
)
_SCRIPT = (Path(__file__).parent / "snapshot.sh").read_text()


@dataclass(frozen=True)
class Workspace:
    """The clone at `path` in which one task, or one sequence, works on `branch`.

    `checkout` is the name of the branch in the clone, if it is to have another there than in the
    portal's repository.
    """

    path: Path
    repository: Repository
    branch: str
    checkout: str = ""

    def create(self, *, base: str) -> None:
        """Make the clone, with `branch` checked out at the commit `base`; nothing if it is there.

        It shares no file with the repository and has no remote. What a crash left half made is
        replaced. Raises WorkspaceError if something else is in the place.
        """
        if (self.path / ".git").exists():
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise WorkspaceError(
                f"{self.path} is in the way of a new clone: it holds files, but no .git folder."
            )
        self.repository.set_refs(self.repository.commit(base), self._base_ref())
        fresh = self.path.with_name(self.path.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fill(fresh)
        fresh.replace(self.path)

    def snapshot(
        self, *, label: str, jail: Jail, home: Path, message: str = "", publish: bool = False
    ) -> str:
        """Record the working tree as the agent left it, as `refs/cat-herder/BRANCH/LABEL`; its commit.

        Takes tracked files and untracked ones that are not ignored, as one commit on top of the
        clone's HEAD, or HEAD itself if nothing differs. The agent's index, HEAD and files stay as
        they are; its clone gets the ref `refs/cat-herder/LABEL`. With `publish` people can fetch it as
        the branch. No agent may run meanwhile. Raises WorkspaceError with the reason if the clone is
        broken.
        """
        if not _LABEL.fullmatch(label):
            raise BadInput(
                f"{label!r} is not a label for a snapshot: use letters, digits, dots, '-' and '_'."
            )
        if not self.path.is_dir():
            raise WorkspaceError(f"The workspace {self.path} does not exist.")
        prefix = f".{self.path.name}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=self.repository.path.parent) as name:
            outcome = Path(name)
            self._pack(outcome, label=label, jail=jail, home=home, message=message)
            commit = self._take(outcome)
        public = [self._public_ref()] if publish else []
        self.repository.set_refs(commit, self._snapshot_ref(label), *public)
        return commit

    def has_snapshot(self, label: str) -> bool:
        return bool(self.repository.refs(self._snapshot_ref(label)))

    def publish(self, commit: str) -> None:
        """Let people fetch `commit` as `branch` from the portal's repository."""
        self.repository.set_refs(valid_commit(commit), self._public_ref())

    def commit(self, snapshot: str, *, jail: Jail, home: Path) -> None:
        """Make the commit `snapshot`, just taken, the newest of the clone's own branch; no file changes.

        Raises WorkspaceError if the clone is broken.
        """
        command = jail.command(
            ["sh", "-c", _COMMIT, "commit", valid_commit(snapshot)],
            workspace=self.path,
            env={"GIT_DIR": str(self.path / ".git"), "GIT_WORK_TREE": str(self.path)},
            home=home,
        )
        done = run(command, timeout=_SNAPSHOT_SECONDS, output_limit=4000)
        if done.exit_code != 0:
            raise WorkspaceError(f"The checkpoint in {self.path} failed: {done.output.strip()}")

    def _base_ref(self) -> str:
        return f"refs/cat-herder-base/{valid_branch(self.branch)}"

    def _snapshot_ref(self, label: str) -> str:
        return f"refs/cat-herder/{valid_branch(self.branch)}/{label}"

    def _public_ref(self) -> str:
        return f"refs/heads/{valid_branch(self.branch)}"

    def _fill(self, fresh: Path) -> None:
        checkout = valid_branch(self.checkout or self.branch)
        Git().run("init", "--quiet", "--template=", "--", str(fresh))
        git = Git(fresh / ".git", work_tree=fresh)
        git.run(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--",
            str(self.repository.path), f"{self._base_ref()}:refs/heads/{checkout}",
            "+refs/source/*:refs/remotes/origin/*",
        )  # fmt: skip
        for key, value in zip(("user.name", "user.email"), _AUTHOR, strict=True):
            git.run("config", key, value)
        # No hook, filter or other program is in a clone that no agent has seen yet.
        git.run("checkout", "--quiet", "--force", checkout, "--")

    def _pack(self, outcome: Path, *, label: str, jail: Jail, home: Path, message: str) -> None:
        known = self.repository.refs(self._base_ref(), self._snapshot_ref(""))
        (outcome / "known").write_text("".join(f"{commit}\n" for commit in sorted(set(known))))
        command = jail.command(
            ["sh", "-c", _SCRIPT],
            workspace=self.path,
            env={
                **self._script_environment(outcome),
                "LABEL": label,
                "MESSAGE": message or f"chore({label}): checkpoint",
            },
            home=home,
            writable=[outcome],
        )
        done = run(command, timeout=_SNAPSHOT_SECONDS, output_limit=4000)
        if done.timed_out:
            raise WorkspaceError(f"Recording {self.path} took more than {_SNAPSHOT_SECONDS:g} seconds.")
        if done.exit_code != 0:
            raise WorkspaceError(f"The clone {self.path} cannot be recorded: {done.output.strip()}")

    def _script_environment(self, outcome: Path) -> dict[str, str]:
        name, email = _AUTHOR
        return {
            "GIT_DIR": str(self.path / ".git"),
            "GIT_WORK_TREE": str(self.path),
            "OUTCOME": str(outcome),
            **{f"GIT_{role}_NAME": name for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_EMAIL": email for role in ("AUTHOR", "COMMITTER")},
        }

    def _take(self, outcome: Path) -> str:
        """Take the pack into the portal's repository; the commit, with all that it needs."""
        git = self.repository.git
        with _regular_file(outcome / "commit") as file:
            commit = valid_commit(file.read(100).decode("ascii", errors="replace").strip())
        if not self.repository.has(commit):
            with _regular_file(outcome / "pack") as pack:
                git.run("index-pack", "--stdin", "--strict", f"--max-input-size={_PACK_BYTES}", stdin=pack)
        git.run("rev-list", "--objects", "--quiet", commit, "--not", "--all")
        return commit


def branch_name(task_slug: str) -> str:
    """The branch of a task: `cat-herder/` and its name, in characters that git takes."""
    words = re.sub(r"[^\w.-]+|\.{2,}", "-", task_slug)[:80].strip("-.")
    name = re.sub(r"\.lock$", "-lock", words)
    if not name:
        raise BadInput(f"{task_slug!r} has no letter or digit to name a branch by.")
    return valid_branch(f"cat-herder/{name}")


@contextmanager
def _regular_file(path: Path) -> Iterator[IO[bytes]]:
    """Open what the jail left, if it is a file: a link could lead to any file of the portal."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise WorkspaceError(
            f"The recording of the workspace left no {path.name}: {error.strerror}"
        ) from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise WorkspaceError(f"The recording of the workspace left a {path.name} that is not a file.")
        yield file

"""A task's clone: the agent's to do with as it likes, so the portal never runs git in it.

What must run there runs in the sandbox, and what comes out is data: one pack of objects, which the portal
checks and takes into its own repository. The portal does not even fetch from the clone: its `.git` may by
now be a link to another task's, which only the sandbox cannot follow.

A clone whose `.git` is gone or broken loses no work: its files are recorded on top of the last recorded
commit, and it gets a new `.git`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks_app.core.errors import BadInput, RepositoryDamaged, WorkspaceError
from tasks_app.git.durable import move_into_place
from tasks_app.git.locks import remove_locks
from tasks_app.git.program import Git, valid_branch, valid_commit
from tasks_app.git.recording import (
    AUTHOR,
    SECONDS,
    CloneBroken,
    Snapshot,
    Source,
    record,
    remove_tree,
    set_refs,
)
from tasks_app.git.repository import Repository
from tasks_app.sandbox import Sandbox, run

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]|\.(?!\.|$|lock$)){0,99}")
_HEAD = re.compile(r"ref: (refs/[^\s\0]+)\n?|[0-9a-f]{40}\n?")
_ID = re.compile(r"[0-9a-f]{40}\s*")
# Hooks of the clone are the agent's; HEAD is moved and the index follows, no file is touched.
_COMMIT = (
    'set -eu; git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }; '
    'git index-pack --stdin --fix-thin <"$2" >/dev/null; git update-ref HEAD "$1"; git reset --quiet'
)
_LOOK = (
    'set -eu; git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }; '
    "git rev-list --objects --quiet HEAD^{tree}; git log -1 --format= HEAD; git ls-files >/dev/null; "
    "find .git/objects -type f -size 0 | grep -q . && { echo 'it has empty objects'; exit 1; } || true"
)


@dataclass(frozen=True)
class Workspace:
    """The clone at `path` in which one task, or one sequence, works on `branch`.

    `checkout` is the name of the branch in the clone, if it is to have another there than in the
    portal's repository. `filters` are the git filters that may decide what is stored of a file.
    """

    path: Path
    repository: Repository
    branch: str
    checkout: str = ""
    filters: tuple[tuple[str, str], ...] = ()

    @property
    def broken_git(self) -> Path:
        """Where the last `.git` is kept that could not be used, for people who want to rescue something."""
        return self.path.with_name(self.path.name + ".broken-git")

    def create(self, *, base: str) -> None:
        """Make the clone, with `branch` checked out at the commit `base`; nothing if it is there.

        It shares no file with the repository and has no remote. What a crash left half made is
        replaced. Raises WorkspaceError if something else is in the place.
        """
        self._set_aside_what_is_no_folder()
        if (self.path / ".git").exists():
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise WorkspaceError(
                f"{self.path} is in the way of a new clone: it holds files, but no .git folder."
            )
        fresh = self.path.with_name(self.path.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fill(fresh, base)
        # No hook, filter or other program is in a clone that no agent has seen yet.
        Git(fresh / ".git", work_tree=fresh).run("checkout", "--quiet", "--force", self._checkout, "--")
        move_into_place(fresh, self.path)

    def _set_aside_what_is_no_folder(self) -> None:
        """A file or a link where the clone should be is kept under another name; a link may lead anywhere."""
        if self.path.is_symlink() or self.path.is_file():
            self.path.rename(self.path.with_name(f"{self.path.name}.not-a-folder-{time.time_ns()}"))

    def snapshot(
        self,
        *,
        label: str,
        sandbox: Sandbox,
        recorded: str = "",
        message: str = "",
        publish: bool = False,
        manifest: bool = False,
        before_it_counts: Callable[[], object] = lambda: None,
    ) -> Snapshot:
        """Record the working tree as the agent left it, as `refs/cat-herder/BRANCH/LABEL`.

        Takes tracked files and untracked ones that are not ignored, those of nested repositories too, as
        one commit on top of the clone's HEAD, or HEAD itself if nothing differs. Nothing in the workspace is
        changed, unless its `.git` cannot be used: then the commit is on top of `recorded` (the last recorded
        one; the workspace's base if empty) and the workspace gets a new `.git`. With `publish` people can
        fetch it as the branch; with `manifest` the ignored files are listed too. No agent may run meanwhile.
        `before_it_counts` is called when all is read and no reference is set yet, and may raise.
        Raises WorkspaceError with the reason if the files cannot be recorded.
        """
        if not _LABEL.fullmatch(label):
            raise BadInput(
                f"{label!r} is not a label for a snapshot: use letters, digits, dots, '-' and '_'."
            )
        if self.path.is_symlink() or not self.path.is_dir():
            raise WorkspaceError(f"The workspace {self.path} does not exist.")
        git = self.path / ".git"
        remove_locks(git)
        text = message or f"chore({label}): checkpoint"
        try:
            made = record(self._source(git), sandbox=sandbox, message=text, manifest=manifest)
        except CloneBroken as broken:
            made = self._record_without_git(
                str(broken), recorded, sandbox=sandbox, message=text, manifest=manifest
            )
        before_it_counts()
        if made.manifest:
            set_refs(self.repository, made.manifest, self._manifest_ref(label))
        public = [self._public_ref()] if publish else []
        set_refs(self.repository, made.commit, self._snapshot_ref(label), *public)
        if made.index_broken:
            made = self._with_new_index(made)
        return made

    def has_snapshot(self, label: str) -> bool:
        return bool(self.repository.refs(self._snapshot_ref(label)))

    def keep(self, commit: str, *, label: str, publish: bool = False) -> None:
        """Let the snapshot `label` name `commit`, and with `publish` also the branch that people fetch."""
        public = [self._public_ref()] if publish else []
        set_refs(self.repository, valid_commit(commit), self._snapshot_ref(label), *public)

    def publish(self, commit: str) -> None:
        """Let people fetch `commit` as `branch` from the portal's repository."""
        set_refs(self.repository, valid_commit(commit), self._public_ref())

    def commit(self, snapshot: str, *, sandbox: Sandbox, home: Path) -> str:
        """Make the commit `snapshot` the newest of the clone's own branch; no file changes.

        A clone that does not take it gets a new `.git`; the returned sentence says so, else it is empty.
        """
        git = self.path / ".git"
        remove_locks(git)
        beside = self.repository.path.parent
        with tempfile.TemporaryDirectory(prefix=f".{self.path.name}-", dir=beside) as name:
            pack = Path(name) / "pack"
            wanted = f"{valid_commit(snapshot)}\n^{snapshot}^@\n".encode()
            words = ("pack-objects", "--revs", "--thin", "--stdout", "-q")
            pack.write_bytes(self.repository.git.run(*words, stdin=wanted))
            problem = self._try(_COMMIT, snapshot, str(pack), sandbox=sandbox, home=home, readable=[pack])
        return self.mend(snapshot, why=f"did not take a checkpoint ({problem})") if problem else ""

    def looks_whole(self) -> bool:
        """Whether `.git` is a git directory at first sight; what else is missing shows when it is used."""
        git = self.path / ".git"
        folders = (git, git / "objects", git / "refs")
        if any(folder.is_symlink() or not folder.is_dir() for folder in folders):
            return False
        head = _HEAD.fullmatch(_text(git / "HEAD"))
        if head is None or not _text(git / "config"):
            return False
        ref = git / head[1] if head[1] else None
        return ref is None or not ref.exists() or bool(_ID.fullmatch(_text(ref)))

    def fault(self, *, sandbox: Sandbox, home: Path) -> str:
        """What is wrong with the clone's git directory, its whole newest commit looked at; or nothing."""
        if not self.looks_whole():
            return "could not be read"
        problem = self._try(_LOOK, sandbox=sandbox, home=home)
        return f"lacks a part of its newest commit ({problem})" if problem else ""

    def mend(self, recorded: str, *, why: str) -> str:
        """Give the clone a new `.git` at the commit `recorded`; files stay. A sentence of what was lost."""
        fresh = self.path.with_name(self.path.name + ".new")
        remove_tree(fresh)
        self._fill(fresh, recorded)
        self._put_in_place(fresh / ".git")
        remove_tree(fresh)
        return self._loss(recorded, why)

    def unlock(self) -> list[Path]:
        """Remove lock files that a killed git left in the clone. No agent may run meanwhile."""
        return remove_locks(self.path / ".git")

    def _record_without_git(
        self, why: str, recorded: str, *, sandbox: Sandbox, message: str, manifest: bool
    ) -> Snapshot:
        """Record the files on top of the last recorded commit, in a new git directory that then stays."""
        recorded = recorded or self.repository.commit(self._base_ref())
        fresh = self.path.with_name(self.path.name + ".new")
        remove_tree(fresh)
        self._fill(fresh, recorded)
        try:
            source = self._source(fresh / ".git")
            made = record(source, sandbox=sandbox, message=message, manifest=manifest)
        except CloneBroken as broken:
            if isinstance(broken.__cause__, RepositoryDamaged):
                raise broken.__cause__ from broken
            if isinstance(broken.__cause__, WorkspaceError):  # from the files, as the commit was taken before
                raise WorkspaceError(
                    f"The workspace {self.path} cannot be recorded: git refuses what is in it."
                    f" {broken.__cause__}"
                ) from broken
            raise WorkspaceError(f"The portal's own repository {self.repository.path} {broken}.") from broken
        self._put_in_place(fresh / ".git")
        remove_tree(fresh)
        return replace(made, notes=(self._loss(recorded, why), *made.notes))

    def _with_new_index(self, made: Snapshot) -> Snapshot:
        """git makes an index anew, but does not go on with one that it cannot read."""
        (self.path / ".git" / "index").unlink(missing_ok=True)
        note = "The git index of the workspace could not be read and was removed: nothing is staged now."
        return replace(made, notes=(note, *made.notes))

    def _put_in_place(self, git: Path) -> None:
        """The old one is kept aside. A crash in between leaves no `.git`, which is mended like any other."""
        old = self.path / ".git"
        remove_tree(self.broken_git)
        if old.is_symlink() or not old.is_dir():
            remove_tree(old)
        else:
            old.rename(self.broken_git)
        git.rename(old)

    def _loss(self, recorded: str, why: str) -> str:
        kept = f" What was left of the old one is in {self.broken_git}." if self.broken_git.exists() else ""
        return (
            f"The workspace's .git {why}. It was made anew at the last recorded commit {recorded[:10]}; the"
            " files are as they were. Commits, branches and stashes that the agent had made itself are not in"
            f" it.{kept}"
        )

    def _source(self, git: Path) -> Source:
        known = self.repository.refs(self._base_ref(), self._snapshot_ref(""))
        base = known[-1] if known else ""
        return Source(self.path, git, self.repository, known, base, self.filters)

    def _try(
        self, script: str, *words: str, sandbox: Sandbox, home: Path, readable: Sequence[Path] = ()
    ) -> str:
        """Run a script in the clone; what it said if it failed, else nothing."""
        command = sandbox.offline_if_possible().command(
            ["sh", "-c", script, "git", *words],
            workspace=self.path,
            env={"GIT_DIR": str(self.path / ".git"), "GIT_WORK_TREE": str(self.path)},
            home=home,
            readable=readable,
        )
        done = run(command, timeout=SECONDS, output_limit=4000)
        return (
            "" if done.exit_code == 0 else done.over_limit or done.output.strip() or "git ended with an error"
        )

    @property
    def _checkout(self) -> str:
        return valid_branch(self.checkout or self.branch)

    def _base_ref(self) -> str:
        return f"refs/cat-herder-base/{valid_branch(self.branch)}"

    def _snapshot_ref(self, label: str) -> str:
        return f"refs/cat-herder/{valid_branch(self.branch)}/{label}"

    def _manifest_ref(self, label: str) -> str:
        return f"refs/cat-herder-ignored/{valid_branch(self.branch)}/{label}"

    def _public_ref(self) -> str:
        return f"refs/heads/{valid_branch(self.branch)}"

    def _fill(self, fresh: Path, base: str) -> None:
        """A git directory in `fresh` with the branch and the index at `base`, and no files."""
        commit = self.repository.commit(base)
        set_refs(self.repository, commit, self._base_ref())
        Git().run("init", "--quiet", "--template=", "--", str(fresh))
        git = Git(fresh / ".git", work_tree=fresh)
        git.run(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
            "--update-shallow", "--", str(self.repository.path),
            f"{self._base_ref()}:refs/heads/{self._checkout}", "+refs/source/*:refs/remotes/origin/*",
        )  # fmt: skip
        git.run("symbolic-ref", "HEAD", f"refs/heads/{self._checkout}")
        git.run("read-tree", commit)
        for key, value in zip(("user.name", "user.email"), AUTHOR, strict=True):
            git.run("config", key, value)


def branch_name(task_slug: str) -> str:
    """The branch of a task: `cat-herder/` and its name, in characters that git takes."""
    words = re.sub(r"[^\w.-]+|\.{2,}", "-", task_slug)[:80].strip("-.")
    name = re.sub(r"\.lock$", "-lock", words)
    if not name:
        raise BadInput(f"{task_slug!r} has no letter or digit to name a branch by.")
    return valid_branch(f"cat-herder/{name}")


def _text(path: Path) -> str:
    """The beginning of a file that is one; else nothing."""
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open(errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""

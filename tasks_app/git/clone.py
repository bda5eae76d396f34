"""A task's clone. The agent may change everything in it, so the portal never runs git in it.

Programs in the clone run in the sandbox, and produce only data: one pack of objects, which the portal checks
and imports into its own repository. The portal does not even fetch from the clone: its `.git` may have become
a link to another task's `.git`, which only the sandbox cannot follow.

No work is lost if a clone's `.git` is missing or broken: the files are recorded on top of the last recorded
commit, and the clone gets a new `.git`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tasks_app.core.errors import BadInput, RepositoryDamaged, WorkspaceError
from tasks_app.core.files import temporary_folder
from tasks_app.git.durable import (
    move_file_into_place,
    move_into_place,
    sync_file_system,
    temporary_name,
)
from tasks_app.git.lfs import LfsContents
from tasks_app.git.names import valid_branch, valid_commit
from tasks_app.git.program import Git, init
from tasks_app.git.recording import (
    AUTHOR,
    SECONDS,
    TEMPORARY,
    CloneBroken,
    Snapshot,
    Source,
    exclude_list,
    record,
    remove_tree,
    set_refs,
)
from tasks_app.git.repository import Repository
from tasks_app.git.submodules import ACTIVE, Submodule
from tasks_app.sandbox import Sandbox, run

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]|\.(?!\.|$|lock$)){0,99}")
_HEAD = re.compile(r"ref: (refs/[^\s\0]+)\n?|[0-9a-f]{40}\n?")
_ID = re.compile(r"[0-9a-f]{40}\s*")
# The agent may have written hooks, so they are switched off. HEAD moves, the index follows, files stay.
_COMMIT_SCRIPT = (
    'set -eu; git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }; '
    'git index-pack --stdin --fix-thin <"$2" >/dev/null; git update-ref HEAD "$1"; git reset --quiet'
)
_UNSTAGE_SCRIPT = (
    'git -c core.fsmonitor=false cat-file -e "HEAD:$1" 2>/dev/null || '
    'git -c core.hooksPath=/dev/null -c core.fsmonitor=false update-index --force-remove -- "$1"'
)
_CHECK_SCRIPT = (
    'set -eu; git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"; }; '
    "git rev-list --objects --quiet --missing=allow-promisor HEAD^{tree}; git log -1 --format= HEAD; "
    "git ls-files >/dev/null; "
    "find .git/objects -type f -size 0 | grep -q . && { echo 'it has empty objects'; exit 1; } || true"
)


# Absent files (of sparse checkouts) are marked in the former index; the new one gets these marks.
_KEEP_MARKS_SCRIPT = (
    "set -eu; export LC_ALL=C; { GIT_INDEX_FILE=\"$1/index\" git ls-files -v -z | sed -z -n 's/^[a-zS] //p'; "
    "git ls-files -z; } | sort -z | uniq -z -d | git update-index --skip-worktree -z --stdin"
)


@dataclass(frozen=True)
class Workspace:
    """The clone at `path` in which one task, or one sequence, works on `branch`.

    `checkout` is the branch's name in the clone if it differs from that in the portal's repository. `filters`
    are the git filters that may change how files are stored.
    """

    path: Path
    repository: Repository
    branch: str
    checkout: str = ""
    filters: tuple[tuple[str, str], ...] = ()

    @property
    def broken_git(self) -> Path:
        """The last `.git` that could not be used, kept for people who want to rescue something."""
        return self.path.with_name(self.path.name + ".broken-git")

    @property
    def unfinished(self) -> Path:
        """A clone, or a new `.git`, that is being made. A process that was killed leaves it."""
        return self.path.with_name(self.path.name + ".new")

    def is_ready(self, setup: str) -> bool:
        """Return whether the setup with this digest has made the workspace ready since it was created."""
        return _beginning_of_file(self._ready_mark) == setup

    def mark_ready(self, setup: str) -> None:
        """Note beside the workspace, where no agent can write, that the setup made it ready."""
        sync_file_system(self.path)  # after a power cut, the files must not be less than the mark says
        with temporary_name(self._ready_mark) as fresh:
            fresh.write_text(setup, encoding="utf-8")
            move_file_into_place(fresh, self._ready_mark, below=self._ready_mark.parent)

    @property
    def _ready_mark(self) -> Path:
        return self.path.with_name(self.path.name + ".ready")

    def create(
        self,
        *,
        base: str,
        below: str = "",
        submodules: Sequence[Submodule] = (),
        contents: LfsContents | None = None,
    ) -> None:
        """Make the clone, with `branch` checked out at the commit `base`, unless it exists.

        With `below`, an earlier commit, HEAD is `below`, and the changes of `base` are staged.

        `submodules` are checked out in it; the folders of others stay empty. `contents` are put in the place
        of pointers of Git LFS; None leaves the pointers.

        It shares no file with the repository and has no remote. An incomplete clone, left by a crash, is
        replaced. Raises WorkspaceError if other files are in its place.
        """
        if self.path.is_symlink() or self.path.is_file():  # keep it; a link may lead anywhere
            self.path.rename(self.path.with_name(f"{self.path.name}.not-a-folder-{time.time_ns()}"))
        if (self.path / ".git").exists():
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise WorkspaceError(
                f"{self.path} is in the way of a new clone: it holds files, but no .git folder."
            )
        fresh = self.unfinished
        shutil.rmtree(fresh, ignore_errors=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A clone that no agent has seen yet contains no hook, filter or other program.
        git = self._init_git(fresh, base)
        git.run("checkout", "--quiet", "--force", self._checkout, "--")
        for one in submodules:
            one.check_out(fresh)
        if submodules:
            git.run("config", *ACTIVE)
        if contents:
            contents.put_into(fresh, base)
        if below:
            git.run("update-ref", "HEAD", valid_commit(below))
        self._ready_mark.unlink(missing_ok=True)
        move_into_place(fresh, self.path)

    def snapshot(
        self,
        *,
        label: str,
        sandbox: Sandbox,
        recorded: str = "",
        below: Callable[[], str] = str,
        message: str = "",
        publish: bool = False,
        manifest: bool = False,
        before_it_counts: Callable[[], object] = lambda: None,
    ) -> Snapshot:
        """Record the working tree as the agent left it, as `refs/cat-herder/BRANCH/LABEL`.

        The snapshot has all tracked files and the untracked ones that are not ignored, also in nested
        repositories. It is one commit on top of the clone's HEAD, or HEAD itself if nothing differs. The
        workspace does not change, unless its `.git` cannot be used: then the commit is on top of `recorded`
        (the last recorded commit; the workspace's base if empty), or on top of `below()` if that returns an
        earlier one that `recorded` shall be merged into, and the workspace gets a new `.git`. With
        `publish` people can fetch it as the branch; with `manifest` the ignored files are listed, too. No
        agent may run meanwhile. `before_it_counts` is called when everything was read and no reference is set
        yet, and may raise. Raises WorkspaceError with the reason if the files cannot be recorded.
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
                str(broken), recorded, below(), sandbox=sandbox, message=text, manifest=manifest
            )
        before_it_counts()
        if made.manifest:
            manifest_ref = f"refs/cat-herder-ignored/{valid_branch(self.branch)}/{label}"
            set_refs(self.repository, made.manifest, manifest_ref)
        self.set_snapshot(made.commit, label=label, publish=publish)
        if made.index_broken:
            # git makes a new index, but does not continue with one that it cannot read.
            (self.path / ".git" / "index").unlink(missing_ok=True)
            note = "The git index of the workspace could not be read and was removed: nothing is staged now."
            made = replace(made, notes=(note, *made.notes))
        return made

    def has_snapshot(self, label: str) -> bool:
        return bool(self.repository.refs(self._snapshot_ref(label)))

    def set_snapshot(self, commit: str, *, label: str, publish: bool = False) -> None:
        """Let the snapshot `label` name `commit`, and with `publish` also the branch that people fetch."""
        public = [self._public_ref()] if publish else []
        set_refs(self.repository, valid_commit(commit), self._snapshot_ref(label), *public)

    def publish(self, commit: str) -> None:
        """Let people fetch `commit` as `branch` from the portal's repository."""
        set_refs(self.repository, valid_commit(commit), self._public_ref())

    def commit(self, snapshot: str, *, sandbox: Sandbox, home: Path) -> str:
        """Make the commit `snapshot` the newest of the clone's own branch, without changing files.

        A clone that does not accept it gets a new `.git`. Returns a sentence that says so, or "".
        """
        git = self.path / ".git"
        remove_locks(git)
        beside = self.repository.path.parent
        with temporary_folder(TEMPORARY, parent=beside) as folder:
            pack = folder / "pack"
            wanted = f"{valid_commit(snapshot)}\n^{snapshot}^@\n".encode()
            words = ("pack-objects", "--revs", "--thin", "--stdout", "-q")
            pack.write_bytes(self.repository.git.run(*words, stdin=wanted))
            problem = self._run_script(
                _COMMIT_SCRIPT,
                snapshot,
                str(sandbox.inside(pack)),
                sandbox=sandbox,
                home=home,
                readable=[pack],
            )
        if not problem:
            return ""
        return self.renew_git(snapshot, why=f"did not take a checkpoint ({problem})", sandbox=sandbox)

    def unstage(self, name: str, *, sandbox: Sandbox, home: Path) -> None:
        """Take a file that was removed out of the index, unless HEAD has it: it would be shown as deleted."""
        if self.has_usable_git():
            self._run_script(_UNSTAGE_SCRIPT, name, sandbox=sandbox, home=home)

    def has_usable_git(self) -> bool:
        """Return whether `.git` looks like a git directory. Other faults show when it is used."""
        git = self.path / ".git"
        folders = (git, git / "objects", git / "refs")
        if any(folder.is_symlink() or not folder.is_dir() for folder in folders):
            return False
        head = _HEAD.fullmatch(_beginning_of_file(git / "HEAD"))
        if head is None or not _beginning_of_file(git / "config"):
            return False
        ref = git / head[1] if head[1] else None
        return ref is None or not ref.exists() or bool(_ID.fullmatch(_beginning_of_file(ref)))

    def git_fault(self, *, sandbox: Sandbox, home: Path) -> str:
        """Return what is wrong with the clone's `.git`, or "". Reads its whole newest commit."""
        if not self.has_usable_git():
            return "could not be read"
        problem = self._run_script(_CHECK_SCRIPT, sandbox=sandbox, home=home)
        if problem:
            return f"lacks a part of its newest commit ({problem})"
        return ""

    def renew_git(self, recorded: str, *, why: str, sandbox: Sandbox, below: str = "") -> str:
        """Give the clone a new `.git` at the commit `recorded`; files stay. Return a note on the loss.

        With `below`, an earlier commit, HEAD is `below`.
        """
        fresh = self.unfinished
        remove_tree(fresh)
        self._init_git_with_index(fresh, recorded, below)
        self._replace_git(fresh / ".git", sandbox)
        remove_tree(fresh)
        return self._loss_note(recorded, why)

    def remove_locks(self) -> list[Path]:
        """Remove lock files that a killed git left in the clone. No agent may run meanwhile."""
        return remove_locks(self.path / ".git")

    def _record_without_git(
        self, why: str, recorded: str, below: str, *, sandbox: Sandbox, message: str, manifest: bool
    ) -> Snapshot:
        """Record the files on top of the last recorded commit, in a new `.git` that the clone then keeps."""
        recorded = recorded or self.repository.commit(self._base_ref())
        fresh = self.unfinished
        remove_tree(fresh)
        self._init_git_with_index(fresh, recorded, below)
        try:
            source = self._source(fresh / ".git")
            made = record(source, sandbox=sandbox, message=message, manifest=manifest)
        except CloneBroken as broken:
            if isinstance(broken.__cause__, RepositoryDamaged):
                raise broken.__cause__ from broken
            if isinstance(broken.__cause__, WorkspaceError):  # the files are the cause: the commit is known
                raise WorkspaceError(
                    f"The workspace {self.path} cannot be recorded: git refuses what is in it."
                    f" {broken.__cause__}"
                ) from broken
            raise WorkspaceError(f"The portal's own repository {self.repository.path} {broken}.") from broken
        self._replace_git(fresh / ".git", sandbox)
        remove_tree(fresh)
        return replace(made, notes=(self._loss_note(recorded, why), *made.notes))

    def _replace_git(self, git: Path, sandbox: Sandbox) -> None:
        """Replace `.git` and keep the old one. A crash in between leaves none, which is repaired later.

        Files that the old one did not show in the workspace are not taken for deleted by the new one.
        """
        old = self.path / ".git"
        remove_tree(self.broken_git)
        if old.is_symlink() or not old.is_dir():
            remove_tree(old)
        else:
            old.rename(self.broken_git)
        git.rename(old)
        if not (self.broken_git / "index").exists():
            return
        marks, beside = str(sandbox.inside(self.broken_git)), self.repository.path.parent
        with temporary_folder(TEMPORARY, parent=beside) as home:
            self._run_script(
                _KEEP_MARKS_SCRIPT, marks, sandbox=sandbox, home=home, readable=[self.broken_git]
            )

    def _loss_note(self, recorded: str, why: str) -> str:
        note = (
            f"The workspace's .git {why}. It was made anew at the last recorded commit {recorded[:10]}; the"
            " files are as they were. Commits, branches and stashes that the agent had made itself are not in"
            " it."
        )
        if self.broken_git.exists():
            note += f" What was left of the old one is in {self.broken_git}."
        return note

    def _source(self, git: Path) -> Source:
        known = self.repository.refs(self._base_ref(), self._snapshot_ref(""))
        base = known[-1] if known else ""
        readable = ("refs/source", self._base_ref(), self._snapshot_ref("").rstrip("/"))
        return Source(self.path, git, self.repository, known, base, readable, self.filters)

    def _run_script(
        self, script: str, *words: str, sandbox: Sandbox, home: Path, readable: Sequence[Path] = ()
    ) -> str:
        """Run a script in the clone. Return its output if it failed, or ""."""
        seen = sandbox.inside(self.path)
        command = sandbox.offline_if_possible().command(
            ["sh", "-c", script, "git", *words],
            workspace=self.path,
            env={"GIT_DIR": str(seen / ".git"), "GIT_WORK_TREE": str(seen)},
            home=home,
            readable=readable,
        )
        done = run(command, timeout=SECONDS, output_limit=4000)
        if done.exit_code == 0:
            return ""
        return done.over_limit or done.output.strip() or "git ended with an error"

    @property
    def _checkout(self) -> str:
        return valid_branch(self.checkout or self.branch)

    def _base_ref(self) -> str:
        return f"refs/cat-herder-base/{valid_branch(self.branch)}"

    def _snapshot_ref(self, label: str) -> str:
        return f"refs/cat-herder/{valid_branch(self.branch)}/{label}"

    def _public_ref(self) -> str:
        return f"refs/heads/{valid_branch(self.branch)}"

    def _init_git(self, fresh: Path, base: str) -> Git:
        """Make a `.git` in `fresh` with the branch at `base`, without an index and files, and return it."""
        commit = self.repository.commit(base)
        set_refs(self.repository, commit, self._base_ref())
        author = zip(("user.name", "user.email"), AUTHOR, strict=True)
        init(fresh, f"--initial-branch={self._checkout}", settings=author)
        git = Git(fresh / ".git", work_tree=fresh)
        (fresh / ".git/info").mkdir(exist_ok=True)
        (fresh / ".git/info/exclude").write_text(exclude_list())
        git.run(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
            "--update-shallow", "--update-head-ok", "--", str(self.repository.path),
            f"{self._base_ref()}:refs/heads/{self._checkout}", "+refs/source/*:refs/remotes/origin/*",
        )  # fmt: skip
        return git

    def _init_git_with_index(self, fresh: Path, base: str, below: str) -> None:
        """Make a `.git` in `fresh` with the index at `base`, and the branch at `below` if given; no files."""
        git = self._init_git(fresh, base)
        git.run("read-tree", "HEAD")
        if below:
            git.run("update-ref", "HEAD", valid_commit(below))


def branch_name(task_slug: str) -> str:
    """Return the branch of a task: `cat-herder/` and its name, in characters that git accepts."""
    words = re.sub(r"[^\w.-]+|\.{2,}", "-", task_slug)[:80].strip("-.")
    name = re.sub(r"\.lock$", "-lock", words)
    if not name:
        raise BadInput(f"{task_slug!r} has no letter or digit to name a branch by.")
    return valid_branch(f"cat-herder/{name}")


def _beginning_of_file(path: Path) -> str:
    """Return the beginning of a regular file, or "" for anything else."""
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open(errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""


_TOP = (
    "index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "ORIG_HEAD.lock",
    "FETCH_HEAD.lock", "MERGE_HEAD.lock", "logs/HEAD.lock",
)  # fmt: skip


def remove_locks(git_directory: Path) -> list[Path]:
    """Remove every lock of a git directory that no process uses. Return the removed ones. Follows no link."""
    removed = []
    for lock in _find_locks(git_directory):
        with suppress(OSError):
            lock.unlink()
            removed.append(lock)
    return removed


def _find_locks(git_directory: Path) -> Iterator[Path]:
    if git_directory.is_symlink():
        return
    yield from (path for name in _TOP if os.path.lexists(path := git_directory / name))
    for top in ("refs", "logs/refs"):
        if (git_directory / top).is_symlink():
            continue
        for where, _, names in os.walk(git_directory / top):
            yield from (Path(where) / name for name in names if name.endswith(".lock"))

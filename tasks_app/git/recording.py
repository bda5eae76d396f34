"""Recording a workspace's files, with a git directory of the portal's own making.

The work is done in the sandbox by `recording_program.py`, which sees the workspace read-only. What comes out
is data: ids, notes, and one pack of objects, which the portal checks and takes into its own repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tasks_app.core.errors import MACHINE_FAULTS, WorkspaceError
from tasks_app.git.durable import sync_folder
from tasks_app.git.program import valid_commit
from tasks_app.git.repository import Repository
from tasks_app.sandbox import Sandbox, run

AUTHOR = ("Cat Herder", "cat-herder@localhost")
SECONDS = 600.0
#: Folders and files that tools fill by themselves wherever they run: dependencies and caches. What is in them
#: is not compared when a step's guard looks at the files that git ignores.
TOOL_FOLDERS = (
    "node_modules", "bower_components", ".venv", "venv", ".tox", ".nox", ".bundle",
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints",
    ".cache", ".parcel-cache", ".turbo", ".vite", ".next", ".nuxt", ".svelte-kit", ".nyc_output", ".gradle",
    ".eslintcache", ".stylelintcache", ".coverage", ".DS_Store", "target",
)  # fmt: skip
#: The id of a list of ignored files that names none.
EMPTY_LIST = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_PACK_BYTES = 2 * 1024**3
_RESULT_BYTES = 10_000_000
_MANIFEST_BYTES = 200_000_000
_PROGRAM = (Path(__file__).parent / "recording_program.py").read_text()
#: Everything that decides what `git add` stores is said here, so that no default of a machine counts.
_CONFIG = """\
[core]
repositoryFormatVersion = 0
bare = false
fileMode = true
symlinks = true
ignoreCase = false
precomposeUnicode = false
autocrlf = false
safecrlf = false
hooksPath = /dev/null
attributesFile = /dev/null
excludesFile = /dev/null
fsmonitor = false
untrackedCache = false
splitIndex = false
sparseCheckout = false
quotePath = false
[gc]
auto = 0
[status]
renames = false
[submodule]
recurse = false
"""
_LFS = "git-lfs clean -- %f"


class CloneBroken(WorkspaceError):
    """The git directory of a clone cannot be used; the files of the workspace may be as good as ever."""


@dataclass(frozen=True)
class Snapshot:
    """What was recorded as `commit`.

    `notes` are sentences about what is not carried, or was lost. `ignored` counts files and folders that git
    ignores: they are in the workspace, not in the commit; `ignored_names` are the first of them. `manifest`
    is the id of the list of ignored files with their fingerprints, if it was asked for. `unrecorded` are
    those notes that tell of work that is in the workspace alone.
    """

    commit: str
    notes: tuple[str, ...] = ()
    ignored: int = 0
    ignored_names: tuple[str, ...] = ()
    manifest: str = ""
    index_broken: bool = False
    unrecorded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What is recorded: the files of `workspace`, on top of the HEAD of `git_directory`.

    `known` are commits that the portal has; `base` is one that HEAD must share history with.
    """

    workspace: Path
    git_directory: Path
    repository: Repository
    known: Sequence[str]
    base: str
    filters: tuple[tuple[str, str], ...] = ()

    @property
    def is_own(self) -> bool:
        return self.git_directory.is_relative_to(self.workspace)


def record(source: Source, *, sandbox: Sandbox, message: str, manifest: bool) -> Snapshot:
    """One commit of all files that git does not ignore, in the portal's repository, named by no ref yet.

    Raises CloneBroken if the git directory is the trouble, else WorkspaceError with the reason.
    """
    folder = source.repository.path.parent
    with tempfile.TemporaryDirectory(prefix=f".{source.workspace.name}-", dir=folder) as name:
        outcome = Path(name)
        result = _run(source, outcome, sandbox=sandbox, manifest=manifest)
        try:
            commit = _take(source, outcome, result, message)
        except WorkspaceError as error:  # the agent's own commits may be malformed, or lack their history
            if _is_of_the_machine(str(error)):
                raise
            raise CloneBroken(f"has commits that cannot be taken ({error})") from error
        if source.filters:
            _take_lfs(source.repository, outcome)
        listed = _take_manifest(source.repository, outcome) if manifest else ""
    ignored = result["ignored"]
    return Snapshot(
        commit,
        notes=(*result["unrecorded"], *result["notes"]),
        ignored=ignored["count"],
        ignored_names=tuple(ignored["names"]),
        manifest=listed,
        index_broken=result["index_broken"],
        unrecorded=tuple(result["unrecorded"]),
    )


def ignored_files(repository: Repository, manifest: str) -> dict[str, str]:
    """The ignored files of a snapshot's `manifest` with their fingerprints."""
    if not manifest or manifest == EMPTY_LIST:
        return {}
    text = repository.git.run("cat-file", "blob", valid_commit(manifest)).decode("utf-8", "surrogateescape")
    lines = (entry.split("\t", 1) for entry in text.split("\0") if entry)
    return {path: fingerprint for fingerprint, path in lines}


def set_refs(repository: Repository, target: str, *refs: str) -> None:
    """Let all of `refs` name the object `target`, or none; a loose object's name is on the disk before."""
    sync_folder(repository.path / "objects" / target[:2])
    repository.set_refs(target, *refs)


def _run(source: Source, outcome: Path, *, sandbox: Sandbox, manifest: bool) -> dict[str, Any]:
    home = outcome / "home"
    home.mkdir()
    shallow = source.repository.path / "shallow"
    order = {
        "workspace": str(source.workspace),
        "git_directory": str(source.git_directory),
        "config": _CONFIG + _filter_settings(source.filters, outcome),
        "shallow": shallow.read_text() if shallow.exists() else "",
        "known": sorted(set(source.known)),
        "manifest": manifest,
        "tool_folders": TOOL_FOLDERS,
    }
    (outcome / "order.json").write_text(json.dumps(order))
    command = sandbox.offline_if_possible().command(
        [sys.executable, "-ISc", _PROGRAM, str(outcome)],
        workspace=outcome,
        env={},
        home=home,
        # A git directory that the portal just made lies beside the workspace. One within it is never named
        # here: it may be a link, and the sandbox would show what it leads to.
        readable=[source.workspace, *([] if source.is_own else [source.git_directory])],
    )
    done = run(command, timeout=SECONDS, output_limit=4000)
    if done.timed_out:
        raise WorkspaceError(f"Recording {source.workspace} took more than {SECONDS:g} seconds.")
    if done.exit_code != 0:
        why = done.over_limit or done.output.strip()
        raise WorkspaceError(f"The workspace {source.workspace} cannot be recorded: {why}")
    return _result(source, outcome)


def _result(source: Source, outcome: Path) -> dict[str, Any]:
    with regular_file(outcome / "result.json") as file:
        result: dict[str, Any] = json.loads(file.read(_RESULT_BYTES))
    if broken := result.get("broken"):
        if _is_of_the_machine(broken):
            raise WorkspaceError(f"The workspace {source.workspace} cannot be recorded: {broken}")
        raise CloneBroken(broken)
    if problem := result.get("problem"):
        raise WorkspaceError(f"The workspace {source.workspace} cannot be recorded: {problem}")
    return result


def _is_of_the_machine(said: str) -> bool:
    """Whether git failed for what a new git directory would not mend: a full disk, too little time."""
    reasons = [os.strerror(number) for number in MACHINE_FAULTS]
    return any(reason in said for reason in (*reasons, "did not end within", "cannot be started"))


def _filter_settings(filters: Sequence[tuple[str, str]], outcome: Path) -> str:
    """The filters that the installation lists; any other `filter=` of a repository does nothing."""
    if not filters:
        return ""
    lines = [f'[lfs]\nstorage = "{outcome}/lfs"\n']
    for name, command in filters:
        quoted = (command or _LFS).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'[filter "{name}"]\nclean = "{quoted}"\nsmudge = cat\nrequired = true\n')
    return "".join(lines)


def _take(source: Source, outcome: Path, result: dict[str, Any], message: str) -> str:
    """Take the pack into the portal's repository; the commit, with all that it needs."""
    git = source.repository.git
    head, head_tree, tree = (valid_commit(result[name]) for name in ("head", "head_tree", "tree"))
    with regular_file(outcome / "pack") as pack:
        if int.from_bytes(os.pread(pack.fileno(), 4, 8), "big"):
            git.run("index-pack", "--stdin", "--strict", f"--max-input-size={_PACK_BYTES}", stdin=pack)
    if source.base and head not in source.known:
        git.run("merge-base", head, source.base)  # fails for a history that has nothing in common
    commit = head
    if tree != head_tree:
        name, email = AUTHOR
        identity = ("-c", f"user.name={name}", "-c", f"user.email={email}")
        text = f"{message}\n".encode(errors="replace")
        commit = git.run(*identity, "commit-tree", "-p", head, tree, stdin=text).decode().strip()
    git.run("rev-list", "--objects", "--quiet", commit, "--not", "--all")
    return commit


def _take_manifest(repository: Repository, outcome: Path) -> str:
    with regular_file(outcome / "manifest") as file:
        if os.fstat(file.fileno()).st_size > _MANIFEST_BYTES:
            raise WorkspaceError("The list of files that git ignores is too long to be kept.")
        return repository.git.run("hash-object", "-w", "--stdin", stdin=file).decode().strip()


def _take_lfs(repository: Repository, outcome: Path) -> None:
    """Keep the contents that Git LFS put beside git, under their checked names, for whoever fetches them."""
    for path in (outcome / "lfs" / "objects").glob("??/??/" + "?" * 64):
        target = repository.path / "lfs" / "objects" / path.relative_to(outcome / "lfs" / "objects")
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{target.name}.{os.getpid()}.new")
        with regular_file(path) as file, fresh.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        with fresh.open("rb") as file:
            right = hashlib.file_digest(file, "sha256").hexdigest() == target.name
        if right:
            fresh.replace(target)
        else:
            fresh.unlink()


def remove_tree(path: Path) -> None:
    """Remove what is there, a link or a file as well; folders that cannot be written are opened first."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    for where, names, _ in os.walk(path):
        for folder in (Path(where) / name for name in names):
            if not folder.is_symlink():
                folder.chmod(0o700)
    shutil.rmtree(path)


@contextmanager
def regular_file(path: Path) -> Iterator[IO[bytes]]:
    """Open what the sandbox left, if it is a file: a link could lead to any file of the portal."""
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

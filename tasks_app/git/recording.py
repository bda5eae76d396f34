"""Recording a workspace's files, with a git directory that the portal makes itself.

`recording_program.py` does the work in the sandbox, where it can only read the workspace. It produces only
data: ids, notes, and one pack of objects, which the portal checks and imports into its own repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tasks_app.core.errors import MACHINE_FAULTS, WorkspaceError
from tasks_app.core.files import NotRegularFile, open_file, temporary_folder
from tasks_app.git.durable import Remembered, fingerprint, move_file_into_place, sync_folder, temporary_name
from tasks_app.git.lfs import contents_in, is_kept, path_of, sha256_of
from tasks_app.git.names import valid_commit
from tasks_app.git.publishing import unreadable
from tasks_app.git.repository import Repository
from tasks_app.sandbox import Sandbox, run

AUTHOR = ("Cat Herder", "cat-herder@localhost")
#: The prefix of folders beside the repositories, each for one recording or one commit.
TEMPORARY = ".workspace-"
SECONDS = 600.0
#: Folders and files that tools fill by themselves wherever they run: dependencies and caches. A step's guard
#: does not compare them when it looks at the files that git ignores.
TOOL_FOLDERS = (
    "node_modules", "bower_components", ".venv", "venv", ".tox", ".nox", ".bundle",
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints",
    ".cache", ".parcel-cache", ".turbo", ".vite", ".next", ".nuxt", ".svelte-kit", ".nyc_output", ".gradle",
    ".eslintcache", ".stylelintcache", ".coverage", ".DS_Store", "target",
)  # fmt: skip
#: Those of them that no repository means to have: git ignores them in clones and recordings, also where
#: .gitignore does not name them. A virtual environment that `setup` makes is no work of the agent.
NEVER_RECORDED = (
    "node_modules", ".venv", ".tox", ".nox", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache",
    ".hypothesis", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
#: The id of an empty list of ignored files.
EMPTY_LIST = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_PACK_BYTES = 2 * 1024**3
_RESULT_BYTES = 10_000_000
_MANIFEST_BYTES = 200_000_000
_PROGRAM = (Path(__file__).parent / "recording_program.py").read_text()
#: Every setting on which the result of `git add` depends, so that no default of a machine has an effect.
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
    """The git directory of a clone cannot be used. The files of the workspace may still be in order."""


@dataclass(frozen=True)
class Snapshot:
    """The result of a recording.

    `notes` are sentences about what the commit does not include, or what was lost. `ignored` counts files and
    folders that git ignores: they are in the workspace, but not in the commit; `ignored_names` are the first
    of them. `manifest` is the id of the list of ignored files with their fingerprints, if requested.
    `unrecorded` are those notes that concern work that exists only in the workspace.
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
    """The files of `workspace` to be recorded on top of the HEAD of `git_directory`.

    `known` are commits that the portal has; `base` is one with which HEAD must share history.
    """

    workspace: Path
    git_directory: Path
    repository: Repository
    known: Sequence[str]
    base: str
    readable_refs: tuple[str, ...]
    filters: tuple[tuple[str, str], ...] = ()

    @property
    def folders(self) -> list[Path]:
        """What is read: the workspace, and a git directory that the portal made beside it.

        One inside of the workspace is not listed: it may be a link, and a sandbox would show its target.
        """
        if self.git_directory.is_relative_to(self.workspace):
            return [self.workspace]
        return [self.workspace, self.git_directory]


def record(source: Source, *, sandbox: Sandbox, message: str, manifest: bool) -> Snapshot:
    """Commit all files that git does not ignore in the portal's repository. No ref names the commit yet.

    Nothing is read if nothing has changed since this process recorded the workspace last; see `unchanged.py`.
    Raises CloneBroken if the git directory is the reason of a failure, otherwise WorkspaceError.
    """
    # What it depends on beside the files; the three paths themselves would take 1.3 kB.
    folders = (source.workspace, source.git_directory, source.repository.path)
    text = repr(([str(folder) for folder in folders], source.filters, manifest))
    key = hashlib.blake2b(text.encode(), digest_size=16).digest()
    found = fingerprint(source.folders)
    last = _remembered.get(key, found)
    if last is not None and last.message in (None, message) and last.is_in(source.repository):
        return last.snapshot
    made = _record(source, sandbox=sandbox, message=message, manifest=manifest)
    # A commit that the portal had before has a message of its own.
    last = _Recorded(made, None if made.commit in source.known else message)
    _remembered.put(key, None if made.index_broken else found, last)
    return made


@dataclass(frozen=True)
class _Recorded:
    """A recording, and the message of its commit if that was made for it."""

    snapshot: Snapshot
    message: str | None

    def is_in(self, repository: Repository) -> bool:
        """Return whether the repository still has its objects."""
        ids = [one for one in (self.snapshot.commit, self.snapshot.manifest) if one]
        lines = "\n".join([*ids, ""]).encode()
        try:
            return b" missing" not in repository.git.run("cat-file", "--batch-check", stdin=lines)
        except WorkspaceError:  # a damaged repository, of which the recording tells more
            return False


_remembered: Remembered[_Recorded] = Remembered()


def _record(source: Source, *, sandbox: Sandbox, message: str, manifest: bool) -> Snapshot:
    folder = source.repository.path.parent
    with temporary_folder(TEMPORARY, parent=folder) as outcome:
        result = _run_program(source, outcome, sandbox=sandbox, manifest=manifest)
        try:
            commit = _import_commit(source, outcome, result, message)
        except WorkspaceError as error:  # the agent's own commits may be malformed, or lack their history
            if _is_machine_fault(str(error)):
                raise
            raise CloneBroken(f"has commits that cannot be taken ({error})") from error
        if source.filters:
            _import_lfs_objects(source.repository, outcome)
        manifest_id = ""
        if manifest:
            with open_output(outcome, "manifest") as file:
                if os.fstat(file.fileno()).st_size > _MANIFEST_BYTES:
                    raise WorkspaceError("The list of files that git ignores is too long to be kept.")
                stored = source.repository.git.run("hash-object", "-w", "--stdin", stdin=file)
            manifest_id = stored.decode().strip()
    ignored = result["ignored"]
    return Snapshot(
        commit,
        notes=(*result["unrecorded"], *result["notes"]),
        ignored=ignored["count"],
        ignored_names=tuple(ignored["names"]),
        manifest=manifest_id,
        index_broken=result["index_broken"],
        unrecorded=tuple(result["unrecorded"]),
    )


def ignored_files(repository: Repository, manifest: str) -> dict[str, str]:
    """Return the ignored files in a snapshot's `manifest` with their fingerprints."""
    if not manifest or manifest == EMPTY_LIST:
        return {}
    text = repository.git.run("cat-file", "blob", valid_commit(manifest)).decode("utf-8", "surrogateescape")
    lines = (entry.split("\t", 1) for entry in text.split("\0") if entry)
    return {path: fingerprint for fingerprint, path in lines}


def set_refs(repository: Repository, target: str, *refs: str) -> None:
    """Let all of `refs` name the object `target`, or none. A loose object is synced to the disk before."""
    sync_folder(repository.path / "objects" / target[:2])
    repository.set_refs(target, *refs)


def _run_program(source: Source, outcome: Path, *, sandbox: Sandbox, manifest: bool) -> dict[str, Any]:
    """Run the recording program in the sandbox and return its result."""
    home = outcome / "home"
    home.mkdir()
    shallow = source.repository.path / "shallow"
    order = {
        "workspace": str(sandbox.inside(source.workspace)),
        "git_directory": str(sandbox.inside(source.git_directory)),
        "config": _CONFIG + _filter_settings(source.filters, sandbox.inside(outcome)),
        "shallow": shallow.read_text() if shallow.exists() else "",
        "known": sorted(set(source.known)),
        "manifest": manifest,
        "tool_folders": TOOL_FOLDERS,
        "exclude": exclude_list(),
    }
    (outcome / "order.json").write_text(json.dumps(order))
    command = sandbox.offline_if_possible().command(
        [sys.executable, "-ISc", _PROGRAM, str(sandbox.inside(outcome))],
        workspace=outcome,
        env={},
        home=home,
        readable=source.folders,
    )
    done = run(command, timeout=SECONDS, output_limit=4000)
    if done.timed_out:
        raise WorkspaceError(f"Recording {source.workspace} took more than {SECONDS:g} seconds.")
    if done.exit_code != 0:
        why = done.over_limit or done.output.strip()
        raise WorkspaceError(f"The workspace {source.workspace} cannot be recorded: {why}")
    with open_output(outcome, "result.json") as file:
        result: dict[str, Any] = json.loads(file.read(_RESULT_BYTES))
    if (broken := result.get("broken")) and not _is_machine_fault(broken):
        raise CloneBroken(broken)
    if problem := broken or result.get("problem"):
        raise WorkspaceError(f"The workspace {source.workspace} cannot be recorded: {problem}")
    return result


def exclude_list() -> str:
    """Return the lines of `info/exclude` for a clone and for its recording."""
    return "\n".join([*NEVER_RECORDED, ""])


def _is_machine_fault(message: str) -> bool:
    """Return whether git failed for a reason that a new git directory cannot repair, such as a full disk."""
    reasons = [os.strerror(number) for number in MACHINE_FAULTS]
    return any(reason in message for reason in (*reasons, "did not end within", "cannot be started"))


def _filter_settings(filters: Sequence[tuple[str, str]], outcome: Path) -> str:
    """Return settings for the filters that the installation lists. All others of a repository do nothing."""
    if not filters:
        return ""
    lines = [f'[lfs]\nstorage = "{outcome}/lfs"\n']
    for name, command in filters:
        quoted = (command or _LFS).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'[filter "{name}"]\nclean = "{quoted}"\nsmudge = cat\nrequired = true\n')
    return "".join(lines)


def _import_commit(source: Source, outcome: Path, result: dict[str, Any], message: str) -> str:
    """Import the pack into the portal's repository and return the commit if it is complete.

    Without a pack if nothing differs from a commit that the portal has, as after runs that only ask or look:
    the next run waits for this.
    """
    git = source.repository.git
    head, head_tree, tree = (valid_commit(result[name]) for name in ("head", "head_tree", "tree"))
    if tree == head_tree and head in source.known:
        return head
    packed: set[str] = set()
    with open_output(outcome, "pack") as pack:
        if int.from_bytes(os.pread(pack.fileno(), 4, 8), "big"):
            words = ("index-pack", "--stdin", "--strict", f"--max-input-size={_PACK_BYTES}")
            packed = _ids_in_pack(source.repository, git.run(*words, stdin=pack).decode().split()[-1])
    if source.base and head not in source.known:
        git.run("merge-base", head, source.base)  # fails for histories that have nothing in common
    commit = head
    if tree != head_tree:
        name, email = AUTHOR
        identity = ("-c", f"user.name={name}", "-c", f"user.email={email}")
        text = f"{message}\n".encode(errors="replace")
        commit = git.run(*identity, "commit-tree", "-p", head, tree, stdin=text).decode().strip()
    # A clone may lack what its commits name, or have it under another object's id, while the portal's
    # repository has that object from another task.
    reachable = ("rev-list", "--objects", "--no-object-names", commit, "--not", *source.known)
    listed = source.repository.git.run(*reachable).decode().split()
    if foreign := unreadable(source.repository, set(listed) - (packed | {commit}), source.readable_refs):
        raise WorkspaceError(f"object {min(foreign)} is not part of the workspace")
    return commit


def _ids_in_pack(repository: Repository, name: str) -> set[str]:
    """Read the ids from the index of a pack that git just made: 1,032 bytes of counts, then the ids."""
    listed = (repository.path / f"objects/pack/pack-{valid_commit(name)}.idx").read_bytes()
    end = 1032 + 20 * int.from_bytes(listed[1028:1032])
    return {listed[at : at + 20].hex() for at in range(1032, end, 20)}


def _import_lfs_objects(repository: Repository, outcome: Path) -> None:
    """Store the contents that Git LFS keeps outside of git, after checking their names, so that people can
    fetch them."""
    for path in contents_in(outcome):
        target = path_of(repository.path, path.name)
        if is_kept(repository.path, path.name):
            continue
        with temporary_name(target) as fresh:
            with open_output(outcome, path.relative_to(outcome).as_posix()) as file, fresh.open("wb") as copy:
                shutil.copyfileobj(file, copy)
            if sha256_of(fresh) == target.name:
                move_file_into_place(fresh, target, below=repository.path)


def remove_tree(path: Path) -> None:
    """Remove a folder, a file or a link. Folders without write permission are made writable first."""
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
def open_output(outcome: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file that the sandbox wrote. Raise WorkspaceError if it is missing or not a regular file."""
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open_file(outcome, name))
        except NotRegularFile:
            message = f"The recording of the workspace left a {name} that is not a file."
            raise WorkspaceError(message) from None
        except OSError as error:
            raise WorkspaceError(
                f"The recording of the workspace left no {name}: {error.strerror}"
            ) from error
        yield file

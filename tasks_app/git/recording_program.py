"""Turn the files of a workspace into a git tree. This is a separate program that runs in the sandbox.

Standard library only: `recording.py` passes this text to the portal's Python, which is in the sandbox, while
the portal's source is not. It uses its own git directory with its own settings: no configuration, attributes
file, exclude list, hook or index flag of the clone has any effect. From the clone it takes only data: HEAD,
refs, objects, and the names in the index.

Argument: a folder with `order.json`. The program writes `result.json` and `pack` into it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

#: For as many ignored files, and bytes, the content is compared; for further ones size and time.
_READ_FILES, _READ_BYTES = 20_000, 1_000_000_000
_PIECE = 1 << 20
#: Bytes that may be recorded at once outside of Git LFS, as in a pack; and from which size on a file that is
#: mostly holes is refused before git reads it. They count for no limit of the disk, but take as long to read.
_RECORDED_BYTES = 2 * 1024**3
_SPARSE_BYTES = 256 * 1024**2
#: Of a pointer that stands in the repository for content in Git LFS.
_POINTER_BYTES, _SIZE_IN_POINTER = 1024, re.compile(rb"^size (\d+)$", re.MULTILINE)
_NO_OBJECT = b"0" * 40
_SHOWN_NAMES = 5
#: Nanoseconds within which the kernel may give two changes the same time.
_CLOCK_TICK = 20_000_000
#: What `git ls-files --debug -z` prints of a file.
_INDEX_ENTRY = re.compile(
    rb"([^\0]+)\0  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: (\d+)\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: [0-9a-f]+\n"
)
#: Where the git directory is, by the order's key and what follows: the one in use, and that of the workspace.
_GIT_DIRECTORIES = (("git_directory", ""), ("workspace", "/.git"))


class CloneBroken(Exception):
    """The clone's git directory cannot be used. Its files may still be in order."""


class NotRecorded(Exception):
    """The files cannot be recorded; the text says which and what to do."""


class Git:
    """git in the own `directory`; HEAD, refs and objects come from the git directory `source`."""

    def __init__(self, directory: str, source: str, tree: str, order: dict[str, Any]) -> None:
        self.tree = os.fsencode(tree)
        self._env = {
            **os.environ,
            "GIT_DIR": directory,
            "GIT_WORK_TREE": tree,
            "GIT_INDEX_FILE": directory + "/index",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C.UTF-8",
        }
        _make_directory(directory, source, order)

    def run(
        self,
        *words: str,
        stdin: bytes = b"",
        at: bytes = b"",
        fails: type[Exception] = NotRecorded,
        into: int = subprocess.PIPE,
        fine: tuple[int, ...] = (0,),
        env: dict[str, str] | None = None,
    ) -> bytes:
        """Run git and return its output, unless that goes `into` a file. Raises `fails` with git's reason."""
        done = subprocess.run(
            ["git", *words],
            input=stdin,
            stdout=into,
            stderr=subprocess.PIPE,
            env={**self._env, **(env or {})},
            cwd=os.path.join(self.tree, at),
            check=False,
        )
        errors = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode not in fine:
            raise fails(errors[-1500:] or f"git {words[0]} ended with {done.returncode}")
        _refuse_incomplete(errors)
        return done.stdout or b""

    def names(self, *words: str, at: bytes = b"", env: dict[str, str] | None = None) -> list[bytes]:
        return [name for name in self.run(*words, at=at, env=env).split(b"\0") if name]


def _refuse_incomplete(errors: str) -> None:
    """Raise NotRecorded if git left out files, of which it only warns."""
    for line in errors.splitlines():
        if "could not open directory" in line:
            raise NotRecorded(f"{line.removeprefix('warning: ')}. Make it readable, or remove it.")
        if line.startswith("Ignoring path "):
            name = line.removeprefix("Ignoring path ")
            raise NotRecorded(
                f"git takes no file named {name}. Rename it, remove it, or let .gitignore name it."
            )


def _make_directory(directory: str, source: str, order: dict[str, Any]) -> None:
    """Make a git directory. It has a copy of the source's HEAD, and links to its refs and objects.

    Those of a further worktree are in the git directory of the clone, which the order names.
    """
    head = _read_head(source)
    source = order.get("common", source)
    os.makedirs(directory + "/objects/info")
    os.makedirs(directory + "/info")
    links = ["refs", "packed-refs", *(name for name in os.listdir(source) if name.startswith("sharedindex."))]
    for name in links:
        if os.path.lexists(f"{source}/{name}"):
            os.symlink(f"{source}/{name}", f"{directory}/{name}")
    for name, text in (
        ("HEAD", head),
        ("config", order["config"]),
        ("shallow", order["shallow"]),
        ("info/exclude", order["exclude"]),
        ("objects/info/alternates", f"{source}/objects\n"),
    ):
        if text:
            with open(f"{directory}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)


def _may_have_other_refs(source: str) -> bool:
    """Return whether there may be branches, tags or stashes besides HEAD's branch, without starting git.

    The answer is also yes for packed references and anything unusual: then git is asked.
    """
    with open(source + "/HEAD", encoding="utf-8", errors="surrogateescape") as file:
        current = file.read(10_000).strip().removeprefix("ref: ")
    if os.path.exists(source + "/packed-refs") or os.path.exists(source + "/refs/stash"):
        return True
    found = []
    for kind in ("heads", "tags"):
        for where, _, names in os.walk(f"{source}/refs/{kind}"):
            found += [f"{where}/{name}" for name in names]
    return found != [f"{source}/{current}"]


def _read_shallow(source: str) -> str:
    """Return where the history of a repository was cut off; empty if it is complete."""
    path = source + "/shallow"
    if not os.path.isfile(path) or os.path.islink(path):
        return ""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(1_000_000)


def _read_head(source: str) -> str:
    try:
        kind = os.lstat(source).st_mode
    except OSError:
        raise CloneBroken("was removed") from None
    if not stat.S_ISDIR(kind):
        raise CloneBroken("was replaced by a link or a file")
    try:
        if not stat.S_ISREG(os.lstat(source + "/HEAD").st_mode):
            raise CloneBroken("has a HEAD that is not a file")
        with open(source + "/HEAD", encoding="utf-8", errors="surrogateescape") as file:
            return file.read(4096)
    except OSError as error:
        raise CloneBroken(f"has no HEAD that can be read ({error.strerror})") from None


class Recording:
    """One recording, from the order to the result."""

    def __init__(self, folder: str, order: dict[str, Any]) -> None:
        self.folder, self.order = folder, order
        self.tree = os.fsencode(order["workspace"])
        self.notes: list[str] = []
        self.unrecorded: list[str] = []
        self.moved: set[bytes] = set()
        self.worktrees: dict[bytes, str] = {}
        self.ignored: list[bytes] = []
        self.git = Git(folder + "/git", order["git_directory"], order["workspace"], order)

    def make(self) -> dict[str, Any]:
        git = self.git
        ids = git.run("rev-parse", "--quiet", "HEAD^{commit}", "HEAD^{tree}", fails=_broken("has no commit"))
        head, head_tree = ids.decode().split()
        in_head = self._read_head_into_index(head)
        self._refuse_sparse(in_head)  # before git reads them to see whether they changed
        staged, marked, index_broken = self._read_agents_index(in_head)
        add, remove = self._changes({name: entry[7:] for name, entry in in_head.items() if _is_link(entry)})
        add |= {name for name in staged.keys() - in_head.keys() - add if self._is_file(name)}
        add -= self._keep_absent(marked, staged, in_head)
        if head in self.order["known"]:  # what only the agent has committed may exist nowhere else
            add -= self._keep_converted(
                {name for name in add - marked if staged.get(name, b"") == in_head.get(name)}
            )
        self._update_index(add, remove)
        self._note_converted(add, set(in_head))
        tree = git.run("write-tree", "--missing-ok", fails=_broken("lacks objects")).decode().strip()
        if tree != head_tree or head not in self.order["known"]:
            self._write_pack(tree, head)
        self._note_own_history(head)
        return {
            "head": head,
            "head_tree": head_tree,
            "tree": tree,
            "notes": self.notes,
            "unrecorded": self.unrecorded,
            "index_broken": index_broken,
            "ignored": {"count": len(self.ignored), "names": _decode(self.ignored[:20])},
        }

    def _read_head_into_index(self, head: str) -> dict[bytes, bytes]:
        """Put the files of HEAD into the index; return mode and id of each, separated by a space.

        Not by `read-tree`, which also keeps the ids of folders. git does not check whether the listing of a
        folder is that of its id, so an agent could list a changed file under the former id, and `write-tree`
        would then return the former tree.
        """
        fails = _broken("lacks a part of its newest commit")
        listed = self.git.run("ls-tree", "-r", "-z", "--full-tree", head, fails=fails)
        self.git.run("update-index", "-z", "--index-info", stdin=listed, fails=fails)
        entries = {}
        for line in filter(None, listed.split(b"\0")):
            fields, name = line.split(b"\t", 1)
            mode, _, object_id = fields.split()
            entries[name] = mode + b" " + object_id
        return entries

    def _read_agents_index(self, in_head: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], set[bytes], bool]:
        """Return what is in the agent's index, the names that it marks, and whether it cannot be read.

        Files that the agent added although they are ignored are listed only there. A sparse checkout and
        `update-index --skip-worktree` or `--assume-unchanged` mark names whose files may be absent. Where
        `.git` was made anew, the marks are in the index of the old one.
        """
        staged, marked, is_broken = dict[bytes, bytes](), set[bytes](), False
        own = self.order["git_directory"]
        for folder in dict.fromkeys(f"{self.order[key]}{end}" for key, end in _GIT_DIRECTORIES):
            lines, index = list[bytes](), folder + "/index"
            try:
                if os.path.lexists(index):
                    lines = self.git.names("ls-files", "--stage", "-v", "-z", env={"GIT_INDEX_FILE": index})
            except NotRecorded:
                is_broken = is_broken or folder == own
            if not lines and self._has_sparse_checkout(folder):
                marked |= in_head.keys()
            for line in lines:
                fields, name = line.split(b"\t", 1)
                tag, mode, object_id, _ = fields.split()
                if folder == own:
                    staged[name] = mode + b" " + object_id
                if tag == b"S" or tag.islower():
                    marked.add(name)
        return staged, marked, is_broken

    def _has_sparse_checkout(self, folder: str) -> bool:
        """Return whether the settings of a git directory say that it shows only a part of the files."""
        words = ("--no-includes", "--type=bool", "--get", "core.sparseCheckout")
        for name in ("config.worktree", "config"):
            try:
                return self.git.run("config", "--file", f"{folder}/{name}", *words).strip() == b"true"
            except NotRecorded:  # the file is missing, or does not say
                continue
        return False

    def _keep_absent(
        self, marked: set[bytes], staged: dict[bytes, bytes], in_head: dict[bytes, bytes]
    ) -> set[bytes]:
        """Return the marked names whose files are absent: they are not deleted. What is staged counts."""
        absent = {name for name in marked if self._is_absent(name)}
        changed = {
            name: staged[name] for name in absent if staged.get(name, b"") not in (b"", in_head.get(name))
        }
        ids = b"".join(entry[7:] + b"\n" for entry in changed.values())
        found = self.git.run("cat-file", "--batch-check", stdin=ids).splitlines() if ids else []
        lines = [
            entry + b"\t" + name + b"\0"
            for (name, entry), known in zip(changed.items(), found, strict=True)
            if _is_link(entry) or not known.endswith(b" missing")
        ]
        if lines:
            self.git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
        if absent:
            self.notes.append(
                f"{len(absent)} files of the repository are not shown in the workspace (sparse checkout, or"
                " marked in its index). They were kept in the result, and checks did not see them:"
                f" {_first_names(sorted(absent))}."
            )
        return absent

    def _keep_converted(self, names: set[bytes]) -> set[bytes]:
        """Return names of files that only filters of the clone have changed: their stored form is kept.

        Nobody has written such a file since the agent's git put it there. Its times and number are compared
        here: git takes every file for changed that was written in the second of its index.
        """
        if not any(self._is_file(name) for name in names):
            return set()
        index = self.order["git_directory"] + "/index"
        listed = self.git.run("ls-files", "--debug", "-z", env={"GIT_INDEX_FILE": index})
        index_at, converted = os.lstat(index).st_mtime_ns, set()
        for found in _INDEX_ENTRY.finditer(listed):
            name, numbers = found[1], [int(number) for number in found.groups()[1:]]
            if name not in names or not self._is_file(name):
                continue
            known = os.lstat(self._path(name))
            seen = [
                *divmod(known.st_ctime_ns, 10**9), *divmod(known.st_mtime_ns, 10**9),
                known.st_ino & 0xFFFFFFFF, known.st_size & 0xFFFFFFFF,
            ]  # fmt: skip
            if numbers == seen and index_at - known.st_mtime_ns > _CLOCK_TICK:
                converted.add(name)
        if converted:
            self.notes.append(
                "In the workspace in another form than in the repository, because of a filter that the portal"
                f" does not use. They were kept as they are stored: {_first_names(sorted(converted))}."
            )
        return converted

    def _changes(self, links: dict[bytes, bytes]) -> tuple[set[bytes], set[bytes]]:
        """Return names to add or update, and names to remove before (gitlinks that become files)."""
        add, remove, nested = set(), set(), []
        for kind, name in self._status():
            if kind == b"!":
                self.ignored.append(name)
            elif name.endswith(b"/"):
                nested.append(name)
            elif name not in links or not os.path.isdir(self._path(name)):
                add.add(name)
        modules = {**links, **dict.fromkeys((name.rstrip(b"/") for name in nested), b"")}
        registered = self._registered_submodules(modules)
        self._note_worktrees()
        nested = []
        for name, commit in modules.items():
            if not os.path.isdir(self._path(name)) or not os.listdir(self._path(name)):
                continue
            if name in registered and (moved := self._examine_submodule(name, commit)) is not None:
                self.moved |= {name} if moved else set()
            elif name not in registered or not commit:
                nested.append(name + b"/")
                remove |= {name} if commit else set()
        return add | self._files_of_nested(nested), remove

    def _status(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield changed, untracked (`?`) and ignored (`!`) names. Nested repositories end with `/`."""
        lines = self.git.names(
            "status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching",
            "--ignore-submodules=dirty",
        )  # fmt: skip
        for line in lines:
            kind = line[:1]
            if kind not in b"?!":
                yield kind, line.split(b" ", 10 if kind == b"u" else 8)[-1]
            elif not self._is_in_worktree(line[2:]):
                yield kind, line[2:]

    def _registered_submodules(self, modules: dict[bytes, bytes]) -> set[bytes]:
        """Return the paths of submodules in `.gitmodules`. Other nested repositories are ordinary files."""
        if not modules or not self._is_file(b".gitmodules"):
            return set()
        words = ("config", "--no-includes", "--file", ".gitmodules", "-z")
        try:
            lines = self.git.names(*words, "--get-regexp", r"^submodule\..*\.path$")
        except NotRecorded:  # it names none, or cannot be read
            return set()
        return {line.partition(b"\n")[2].rstrip(b"/") for line in lines}

    def _examine_submodule(self, name: bytes, recorded: bytes) -> bool | None:
        """Note what of a submodule is not recorded. Return whether its gitlink must move to its new commit.

        Return None if it cannot be read as a repository.
        """
        shown = _decode([name])[0]
        try:
            inner = self._git_in(name)
            commit = inner.run("rev-parse", "HEAD^{commit}").strip()
            own = len(inner.run("rev-list", "--max-count=1000", "HEAD", "--not", "--remotes").split())
            inner.run("read-tree", "HEAD")
            words = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all")
            changed = len(inner.names(*words, "--ignore-submodules=all"))
        except (CloneBroken, NotRecorded, OSError):
            if recorded:
                self.unrecorded.append(f"Submodule {shown}: its files are not part of the result.")
            return None
        lost = [
            *([f"{changed} changed or new files"] if changed else []),
            *([f"{own} commits that no remote has"] if own else []),
        ]
        if lost:
            self.unrecorded.append(
                f"Submodule {shown}: {' and '.join(lost)} in it are not part of the result."
            )
        return commit != recorded and not own

    def _is_in_worktree(self, name: bytes) -> bool:
        """Return whether the name is in a further worktree of the clone, or is one and ends with `/`.

        Such a folder has a `.git` file that leads into the folder `worktrees` of the clone's git directory.
        That may have been made anew since, without that folder.
        """
        own = [os.path.realpath(f"{self.order[key]}{end}/worktrees") for key, end in _GIT_DIRECTORIES]
        parts = name.split(b"/")
        for depth in range(1, len(parts)):
            folder = b"/".join(parts[:depth])
            if folder not in self.worktrees:
                try:
                    source = self._git_directory_of(folder)
                except OSError:  # unreadable folders do not count as worktrees
                    source = ""
                self.worktrees[folder] = source if os.path.dirname(source) in own else ""
            if self.worktrees[folder]:
                return True
        return False

    def _note_worktrees(self) -> None:
        """Note further worktrees of the clone, and what exists only there. Branches are in the clone."""
        for folder, source in sorted(self.worktrees.items()):
            if not source:
                continue
            shown = f"Worktree {_decode([folder])[0]}/: it is not part of the result"
            try:
                inner = self._git_in(folder, common=self.order["git_directory"])
                own = inner.run(
                    "rev-list", "--max-count=1", "HEAD", "--not", "--branches", "--remotes"
                ).strip()
                inner.run("read-tree", "HEAD")
                words = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all")
                changed = len(inner.names(*words, "--ignore-submodules=all"))
            except (CloneBroken, NotRecorded, OSError):
                self.unrecorded.append(f"{shown}.")
                continue
            lost = [
                *([f"{changed} changed or new files"] if changed else []),
                *(["commits that no branch has"] if own else []),
            ]
            if lost:
                self.unrecorded.append(f"{shown}, nor are {' and '.join(lost)} in it.")
            else:
                self.notes.append(f"{shown}.")

    def _git_directory_of(self, name: bytes) -> str:
        """Return the git directory of a folder: its `.git`, or where a file of this name leads."""
        folder = os.fsdecode(self._path(name))
        source = folder + "/.git"
        if os.path.isfile(source) and not os.path.islink(source):
            with open(source, encoding="utf-8", errors="surrogateescape") as file:
                target = file.read(4096).removeprefix("gitdir:").strip()
            return os.path.realpath(os.path.join(folder, target))
        return source

    def _git_in(self, name: bytes, **more: str) -> Git:
        """Return git for a submodule or a worktree: its git directory may be in that of the workspace."""
        source = self._git_directory_of(name)
        number = sum(one.startswith("inner-") for one in os.listdir(self.folder))
        order = {**self.order, "shallow": _read_shallow(more.get("common", source)), **more}
        return Git(f"{self.folder}/inner-{number}", source, os.fsdecode(self._path(name)), order)

    def _files_of_nested(self, folders: list[bytes]) -> set[bytes]:
        """Return the files of nested repositories that neither they nor the workspace ignore."""
        found: set[bytes] = set()
        queue, repositories = list(folders), list[bytes]()
        while queue:
            folder = queue.pop()
            repositories.append(folder)
            env = {
                "GIT_WORK_TREE": os.fsdecode(self._path(folder)),
                "GIT_INDEX_FILE": self.folder + "/no-index",
            }
            inside = self.git.names("ls-files", "--others", "--exclude-standard", "-z", at=folder, env=env)
            queue += [folder + name for name in inside if name.endswith(b"/")]
            found |= {folder + name for name in inside if not name.endswith(b"/")}
        if repositories:
            self._note_nested(sorted(repositories))
        if not found:
            return found
        listed = b"".join(name + b"\0" for name in found)
        words = ("check-ignore", "--no-index", "-z", "--stdin")
        return found - set(self.git.run(*words, stdin=listed, fine=(0, 1)).split(b"\0"))  # 1: it found none

    def _note_nested(self, folders: list[bytes]) -> None:
        own = [folder for folder in folders if self._has_own_history(folder)]
        others = [folder for folder in folders if folder not in own]
        fate = "their files are recorded, their own history is not"
        if others:
            self.notes.append(f"Nested repositories ({_first_names(others)}): {fate}.")
        if own:
            self.unrecorded.append(
                f"Nested repositories ({_first_names(own)}): {fate}. They have commits that no remote has."
            )

    def _has_own_history(self, folder: bytes) -> bool:
        """Return whether a nested repository has commits or stashes that seem to exist nowhere else.

        A further worktree of the workspace's repository has its branches in that repository.
        """
        try:
            inner = self._git_in(folder)
            return bool(inner.run("rev-list", "--max-count=1", "--all", "--not", "--remotes").strip())
        except (CloneBroken, NotRecorded, OSError):
            return not os.path.isfile(os.path.join(self._path(folder), b".git"))

    def _note_own_history(self, head: str) -> None:
        """Note what is not recorded: the agent's tags, and branches and stashes that HEAD does not reach."""
        if not _may_have_other_refs(self.order["git_directory"]):
            return
        known = "".join(f"^{one}\n" for one in self.order["known"]).encode()
        words = (
            "rev-list",
            "--max-count=1",
            "--ignore-missing",
            "--stdin",
            "--all",
            "--not",
            "--remotes",
            head,
        )
        reached = ("for-each-ref", "--format=%(refname:strip=2)", f"--merged={head}", "refs/tags")
        try:
            own, tags = self.git.run(*words, stdin=known), self.git.run(*reached)
        except NotRecorded:  # a broken reference: its commits are lost already
            return
        if tags:  # the portal's clones have none
            named = _first_names(tags.rstrip(b"\n").split(b"\n"))
            self.notes.append(f"Tags are not part of the result: {named}. Make them where it is published.")
        if own:
            select = (
                "--format=%(refname:short)",
                f"--no-merged={head}",
                "refs/heads",
                "refs/tags",
                "refs/stash",
            )
            refs = self.git.run("for-each-ref", *select).split(b"\n")
            self.unrecorded.append(
                "Commits on branches, tags or stashes of the agent's own are not part of the result:"
                f" {_first_names([ref for ref in refs if ref])}."
            )

    def _update_index(self, add: set[bytes], remove: set[bytes]) -> None:
        special = {name for name in add if self._is_special(name)}
        # Also remove files of a folder that is a link now: update-index would not change them.
        remove |= {name for name in add if not self._is_file(name)}
        add -= remove
        unreadable = sorted(name for name in add - special if not self._is_readable(name))
        if unreadable:
            raise NotRecorded(
                f"These files cannot be read: {_first_names(unreadable)}. Make them readable, remove them, or"
                " let .gitignore name them."
            )
        if special:
            names = _first_names(sorted(special))
            self.notes.append(f"Not part of the result, as git has no such files: {names}.")
        if gone := remove | special:
            lines = b"".join(b"0 " + _NO_OBJECT + b"\t" + name + b"\0" for name in gone)
            self.git.run("update-index", "-z", "--index-info", stdin=lines)
        self._refuse_too_large(add - special)
        if wanted := (add - special) | self.moved:
            listed = b"".join(name + b"\0" for name in sorted(wanted))
            self.git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=listed)

    def _refuse_sparse(self, names: Iterable[bytes]) -> None:
        """Raise NotRecorded if files are large and mostly holes, unless the portal has them in this length.

        Some file systems store zeros as holes. Reading such a file takes no longer than it did before.
        """
        holes = [name for name in names if self._is_sparse(name)]
        sparse = sorted(name for name in holes if self._size(name) not in self._known_sizes(name))
        if sparse:
            raise NotRecorded(
                f"These files are large and mostly empty: {_first_names(sparse)}. Remove them, or let"
                " .gitignore name them."
            )

    def _refuse_too_large(self, names: set[bytes]) -> None:
        """Raise NotRecorded if the files are more than can be recorded in a reasonable time."""
        self._refuse_sparse(names)
        sizes = {name: size for name in names if (size := self._size(name))}
        if sum(sizes.values()) <= _RECORDED_BYTES:
            return
        listed = b"".join(name + b"\0" for name in sizes)
        told = self.git.run("check-attr", "-z", "--stdin", "filter", stdin=listed).split(b"\0")
        for name, value in zip(told[::3], told[2::3], strict=False):
            if b'[filter "%s"]' % value in self.order["config"].encode():
                del sizes[name]
        if (total := sum(sizes.values())) > _RECORDED_BYTES:
            largest = sorted(sizes, key=sizes.__getitem__, reverse=True)
            raise NotRecorded(
                f"The new and changed files have {total / 1024**3:.1f} GB together, and at most"
                f" {_RECORDED_BYTES / 1024**3:.0f} GB can be recorded. The largest: {_first_names(largest)}."
                " Remove them, or let .gitignore name them."
            )

    def _size(self, name: bytes) -> int:
        """Return the length of a regular file; 0 for others."""
        try:
            status = os.lstat(self._path(name))
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def _known_sizes(self, name: bytes) -> Iterator[int]:
        """Yield the length of a file in each known commit; with Git LFS that of its content."""
        for commit in self.order["known"]:
            spelled = f"{commit}:{os.fsdecode(name)}"
            try:
                size = int(self.git.run("cat-file", "-s", spelled))
                if size <= _POINTER_BYTES:
                    pointer = self.git.run("cat-file", "blob", spelled)
                    size = int(_SIZE_IN_POINTER.findall(pointer)[0])
            except (NotRecorded, IndexError):  # this commit lacks it, or the file is short itself
                continue
            yield size

    def _is_sparse(self, name: bytes) -> bool:
        """Return whether a file is large and mostly holes. Compressed data also has few blocks."""
        size = self._size(name)
        if size <= _SPARSE_BYTES:
            return False
        at = data = 0
        try:
            with open(self._path(name), "rb") as file:
                while data < size // 2:
                    begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
                    at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
                    data += at - begin
        except OSError as error:
            return error.errno == errno.ENXIO  # only holes follow
        return False

    def _note_converted(self, added: set[bytes], in_head: set[bytes]) -> None:
        """Note files that git converts, so that a checkout may differ from what checks saw."""
        if not any(name.rpartition(b"/")[2] == b".gitattributes" for name in in_head | added):
            return
        converted = []
        for line in self.git.names("ls-files", "--stage", "-z"):
            fields, name = line.split(b"\t", 1)
            is_file = fields.startswith(b"100")
            if name in added and is_file and fields.split()[1] != self._unconverted_id(name):
                converted.append(name)
        if converted:
            names = _first_names(converted)
            self.notes.append(f"Stored in another form than checks saw, as .gitattributes wants it: {names}.")

    def _unconverted_id(self, name: bytes) -> bytes:
        """Return the id that git would give to the file without any conversion."""
        digest = hashlib.sha1(usedforsecurity=False)
        with open(self._path(name), "rb") as file:
            digest.update(b"blob %d\0" % os.fstat(file.fileno()).st_size)
            while piece := file.read(_PIECE):
                digest.update(piece)
        return digest.hexdigest().encode()

    def _write_pack(self, tree: str, head: str) -> None:
        """Write a pack of the objects that the portal lacks.

        Known commits that are missing in the clone are left out of the order: git could not exclude their
        objects.
        """
        # Their trees, too: what only these have may be missing in a partial clone, and is not sent again.
        names = [name for one in self.order["known"] for name in (one, one + "^{tree}")]
        found = self.git.run(
            "cat-file", "--batch-check=%(objecttype) %(objectname)", stdin="\n".join([*names, ""]).encode()
        )
        lines = [line.split(" ") for line in found.decode().splitlines()]
        excluded = [line[1] for line in lines if line[0] in ("commit", "tree")]
        wanted = "\n".join([tree, head, *(f"^{one}" for one in excluded), ""]).encode()
        # It fails if anything else is missing: the portal may have that from another task.
        words = ("pack-objects", "--revs", "--stdout", "-q")
        with open(self.folder + "/pack", "wb") as file:
            self.git.run(*words, stdin=wanted, into=file.fileno(), fails=_broken("lacks objects"))

    def write_manifest(self) -> None:
        """Write fingerprints of the ignored files, which show later what a step made or changed."""
        left = [_READ_FILES, _READ_BYTES]
        skipped = {name.encode() for name in self.order["tool_folders"]}
        with open(self.folder + "/manifest", "wb") as file:
            for name in sorted(self._files_in(self.ignored, skipped)):
                file.write(self._fingerprint(name, left) + b"\t" + name + b"\0")

    def _files_in(self, names: Iterable[bytes], skipped: set[bytes]) -> Iterator[bytes]:
        for name in names:
            if skipped.intersection(name.rstrip(b"/").split(b"/")):
                continue
            if not name.endswith(b"/"):
                yield name
                continue
            for where, folders, files in os.walk(self._path(name.rstrip(b"/"))):
                inner = os.path.relpath(where, self.tree)
                folders[:] = [
                    one
                    for one in folders
                    if one not in skipped
                    and one != b".git"
                    and not self._is_in_worktree(os.path.join(inner, one, b""))
                ]
                yield from (os.path.join(inner, one) for one in files if one not in skipped)

    def _fingerprint(self, name: bytes, left: list[int]) -> bytes:
        path = self._path(name)
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                return b"link:" + hashlib.blake2b(os.readlink(path), digest_size=16).hexdigest().encode()
            if not stat.S_ISREG(status.st_mode):
                return b"special"
            left[0] -= 1
            left[1] -= status.st_size
            if min(left) < 0:
                return f"{status.st_size}:{status.st_mtime_ns}".encode()
            with open(path, "rb") as file:
                return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest().encode()
        except OSError:
            return b"unreadable"

    def _path(self, name: bytes) -> bytes:
        return os.path.join(self.tree, name)

    def _is_file(self, name: bytes) -> bool:
        """Return whether the name exists, is not a folder, and has no link among the folders above it."""
        parts = name.split(b"/")
        above = [self._path(b"/".join(parts[:depth])) for depth in range(1, len(parts))]
        try:
            in_folders = all(stat.S_ISDIR(os.lstat(one).st_mode) for one in above)
            return in_folders and not stat.S_ISDIR(os.lstat(self._path(name)).st_mode)
        except OSError:
            return False

    def _is_absent(self, name: bytes) -> bool:
        """Return whether there is nothing of this name, and nothing but folders above it."""
        parts = name.split(b"/")
        for depth in range(1, len(parts) + 1):
            try:
                kind = os.lstat(self._path(b"/".join(parts[:depth]))).st_mode
            except FileNotFoundError:
                return True
            except OSError:
                return False
            if not stat.S_ISDIR(kind):
                return False
        return False

    def _is_special(self, name: bytes) -> bool:
        try:
            kind = os.lstat(self._path(name)).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind))

    def _is_readable(self, name: bytes) -> bool:
        path = self._path(name)
        return os.path.islink(path) or not os.path.exists(path) or os.access(path, os.R_OK)


def _broken(what: str) -> type[Exception]:
    """Return a kind of CloneBroken that puts `what` before git's own reason."""

    class Broken(CloneBroken):
        def __init__(self, reason: str) -> None:
            super().__init__(f"{what} ({reason})")

    return Broken


def _is_link(entry: bytes) -> bool:
    """Return whether an index entry with this mode and id is a submodule."""
    return entry.startswith(b"160000")


def _decode(names: Iterable[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in names]


def _first_names(names: list[bytes]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(_decode(names[:_SHOWN_NAMES])) + more


def main(folder: str) -> int:
    with open(folder + "/order.json", encoding="utf-8", errors="surrogateescape") as file:
        order = json.load(file)
    result: dict[str, Any]
    try:
        recording = Recording(folder, order)
        result = recording.make()
        if order["manifest"]:
            recording.write_manifest()
    except CloneBroken as broken:
        result = {"broken": str(broken)}
    except NotRecorded as reason:
        result = {"problem": str(reason)}
    with open(folder + "/result.json", "w", encoding="utf-8", errors="replace") as file:
        json.dump(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

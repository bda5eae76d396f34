"""Making a commit with other contents of some files, without a workspace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from tasks_app.core.errors import WorkspaceError
from tasks_app.git.durable import sync_folders
from tasks_app.git.names import valid_commit
from tasks_app.git.publishing import make_commit
from tasks_app.git.recording import AUTHOR
from tasks_app.git.repository import Repository

#: Mode, type and id of an entry of a tree.
TreeEntry = tuple[bytes, bytes, bytes]
_FILE, _FOLDER, _LINK = b"100644", b"040000", b"120000"


def with_files(
    repository: Repository, commit: str, files: Mapping[str, bytes], *, message: str, at: datetime
) -> str:
    """Return a commit that follows `commit`, in which `files` have these contents; new folders are made.

    Raises WorkspaceError for a path that is not a regular file in `commit`, or that leads through a file, a
    link or a submodule: what is there would be lost.
    """
    writing = _TreeWriter(repository)
    tree = writing.tree(repository.tree(commit), files, "")
    sync_folders({repository.path / "objects" / one[:2] for one in writing.written})
    return make_commit(repository, tree, parents=[commit], message=message, author=AUTHOR, at=at)


class _TreeWriter:
    """Writes blobs and trees into a repository; `written` are their ids."""

    def __init__(self, repository: Repository) -> None:
        self._git = repository.git
        self.written: list[str] = []

    def tree(self, before: str, files: Mapping[str, bytes], folder: str) -> str:
        """Write a folder with the files, whose paths are relative to it. `before` is its tree, "" if new."""
        entries = self._entries(before)
        below: dict[str, dict[str, bytes]] = defaultdict(dict)
        for path, content in files.items():
            name, _, rest = path.partition("/")
            if rest:
                below[name][rest] = content
            else:
                mode, _, _ = _existing(entries, name, b"blob", folder)
                blob = self._write("hash-object", "-w", "--stdin", stdin=content)
                entries[name.encode()] = (mode or _FILE, b"blob", blob.encode())
        for name, inner in below.items():
            _, _, was = _existing(entries, name, b"tree", folder)
            tree = self.tree(was.decode(), inner, f"{folder}{name}/")
            entries[name.encode()] = (_FOLDER, b"tree", tree.encode())
        lines = (b" ".join(fields) + b"\t" + name + b"\0" for name, fields in entries.items())
        return self._write("mktree", "-z", stdin=b"".join(lines))

    def _entries(self, tree: str) -> dict[bytes, TreeEntry]:
        """Return what git says of each entry of a tree, by its name."""
        listed = self._git.run("ls-tree", "-z", valid_commit(tree)) if tree else b""
        entries: dict[bytes, TreeEntry] = {}
        for entry in filter(None, listed.split(b"\0")):
            fields, _, name = entry.partition(b"\t")
            mode, kind, one = fields.split(b" ")
            entries[name] = mode, kind, one
        return entries

    def _write(self, *words: str, stdin: bytes) -> str:
        made = self._git.run(*words, stdin=stdin).decode().strip()
        self.written.append(made)
        return made


def _existing(entries: Mapping[bytes, TreeEntry], name: str, kind: bytes, folder: str) -> TreeEntry:
    """Return the entry of this name, with an empty mode if it is missing. Raises WorkspaceError."""
    found = entries.get(name.encode(), (b"", kind, b""))
    if found[1] != kind or found[0] == _LINK:
        wanted = "folder" if kind == b"tree" else "regular file"
        raise WorkspaceError(f"{folder}{name} is in the way: it is not a {wanted}.")
    return found

"""Reading single files of a project: as committed, or as an agent left them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.files import create_file, open_file, open_folder, path_inside
from tasks_app.core.text import storable_text
from tasks_app.git.names import valid_commit
from tasks_app.git.program import split_stream
from tasks_app.git.repository import Repository

TEXT_BYTES = 1_000_000
DIFFERENCE_BYTES = 200_000
_TREE_BYTES = 8_000_000


@dataclass(frozen=True)
class TreeFile:
    """A file of a commit. `mode` is git's: 100644, 100755 (executable) or 120000 (a link)."""

    path: str
    mode: str
    blob: str
    size: int

    @property
    def is_link(self) -> bool:
        return self.mode == "120000"


def committed_tree(repository: Repository, *, commit: str, paths: Sequence[str] = ()) -> tuple[TreeFile, ...]:
    """Return all files of a commit in git's order, or those among the paths.

    If the list is longer than 8 MB: only its beginning, after the files of the root.
    """
    words = ("-l", "-z", "--full-tree", valid_commit(commit), "--", *paths)
    listed, more = repository.git.run_limited("ls-tree", "-r", *words, limit=_TREE_BYTES)
    files = _parse_tree(listed)
    if not more:
        return files
    root = _parse_tree(repository.git.run_limited("ls-tree", *words, limit=_TREE_BYTES)[0])
    return (*root, *(file for file in files if "/" in file.path))


def _parse_tree(listed: bytes) -> tuple[TreeFile, ...]:
    entries = listed.decode("utf-8", errors="replace").split("\0")[:-1]
    return tuple(file for entry in entries if (file := _parse_tree_entry(entry)))


def root_names(repository: Repository, *, commit: str) -> frozenset[str]:
    """Return the names of the files and folders at the root of a commit."""
    listed = repository.git.run("ls-tree", "-z", "--name-only", "--full-tree", valid_commit(commit))
    return frozenset(shown_name(name) for name in listed.split(b"\0") if name)


def paths_named(repository: Repository, *, commit: str, wanted: re.Pattern[str]) -> list[str]:
    """Return the paths of the files and links of a commit that `wanted` matches as a whole."""
    listed = repository.git.stream("ls-tree", "-r", "-z", "--name-only", "--full-tree", valid_commit(commit))
    names = (name.decode("utf-8", errors="replace") for name in split_stream(listed, b"\0"))
    return [name for name in names if wanted.fullmatch(name)]


def _parse_tree_entry(entry: str) -> TreeFile | None:
    """Parse `100644 blob 1f2e…     123<TAB>path`. Return None for a submodule."""
    fields, _, path = entry.partition("\t")
    mode, kind, blob, size = fields.split()
    if kind == "blob":
        return TreeFile(path, mode, blob, int(size))
    return None


def blob_bytes(repository: Repository, file: TreeFile, *, limit: int = TEXT_BYTES) -> bytes:
    """Return the first `limit` bytes of a file of a commit."""
    return repository.git.run_limited("cat-file", "blob", file.blob, limit=limit)[0]


def committed_text(repository: Repository, *, commit: str, path: str) -> str | None:
    """Return the text of `path` in a commit, up to 1 MB; None if the commit has no such file."""
    content = committed_bytes(repository, commit=commit, path=path)
    if content is None:
        return None
    return content.decode("utf-8", errors="replace")


def committed_bytes(
    repository: Repository, *, commit: str, path: str, limit: int = TEXT_BYTES
) -> bytes | None:
    """Return the content of `path` in a commit; None if the commit has no such file.

    Raises WorkspaceError if it has more than `limit` bytes.
    """
    blob = committed_blob(repository, commit=commit, path=path)
    if blob is None:
        return None
    content, more = repository.git.run_limited("cat-file", "blob", blob, limit=limit)
    if more:
        raise WorkspaceError(f"{path} is larger than {limit:,} bytes.")
    return content


def committed_text_behind_links(repository: Repository, *, commit: str, path: str) -> str | None:
    """Return what `committed_text` does, but follow links that stay in the repository."""
    request = f"{valid_commit(commit)}:{path}\n".encode()
    if "\n" in path:
        return None
    words = ("cat-file", "--follow-symlinks", "--batch-check=%(objecttype) %(objectname) %(objectsize)")
    answer = repository.git.run(*words, stdin=request).decode("utf-8", errors="replace").split()
    if len(answer) != 3 or answer[0] != "blob":  # missing, a folder, or a link that leads outside
        return None
    if int(answer[2]) > TEXT_BYTES:
        raise WorkspaceError(f"{path} is larger than {TEXT_BYTES:,} bytes.")
    return repository.git.run("cat-file", "blob", answer[1]).decode("utf-8", errors="replace")


def committed_blob(repository: Repository, *, commit: str, path: str, links: bool = False) -> str | None:
    """Return the blob id of `path` in a commit; None if the commit has no such file, or link with `links`."""
    listed = repository.git.run("ls-tree", "-z", "--full-tree", valid_commit(commit), "--", path)
    if not listed.startswith((b"100", b"120") if links else b"100"):  # neither folder nor submodule
        return None
    return listed.split(b"\t", 1)[0].split()[2].decode()


def committed_blobs(repository: Repository, *, commit: str, paths: Collection[str]) -> dict[str, str]:
    """Return the blob ids by path, of all `paths` that are regular files of the commit."""
    if not paths:
        return {}
    listing = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", valid_commit(commit))
    listed = repository.git.run(*listing, "--", *paths)
    entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry.startswith(b"100"))
    return {shown_name(path): fields.split()[2].decode() for fields, _, path in entries}


def blob_difference(repository: Repository, *, old: str, new: str) -> str:
    """Return what a file's content became, as a unified diff. Raises WorkspaceError if it is lost or long."""
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--unified=3")
    text, more = repository.git.run_limited(
        "diff", *options, valid_commit(old), valid_commit(new), "--", limit=DIFFERENCE_BYTES
    )
    if more:
        raise WorkspaceError(f"The difference is larger than {DIFFERENCE_BYTES:,} bytes.")
    return text.decode("utf-8", errors="replace")


def shown_name(name: bytes) -> str:
    """Return a file name of git as it is shown and stored. Bytes that are not UTF-8 become U+FFFD."""
    return storable_text(name.decode("utf-8", errors="replace"))


def blobs_shown_as(repository: Repository, *, commit: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Return the shown names and the blob ids of the regular files of a commit that are shown as `names`.

    All names of the commit are compared, because git cannot look up a name with U+FFFD in place of its bytes.
    """
    listed = repository.git.stream("ls-tree", "-r", "-z", "--full-tree", valid_commit(commit))
    found = []
    for entry in split_stream(listed, b"\0"):
        fields, _, path = entry.partition(b"\t")
        if entry.startswith(b"100") and (name := shown_name(path)) in names:
            found.append((name, fields.split()[2].decode()))
    return found


def has_line_with_prefix(repository: Repository, blob: str, prefixes: Collection[str]) -> bool:
    """Return whether a line of the blob starts with one of `prefixes`. Blobs of any size are searched."""
    wanted = re.compile(b"[\r\n](?:%b)" % b"|".join(re.escape(prefix.encode()) for prefix in prefixes))
    overlap = max(len(prefix.encode()) for prefix in prefixes)
    end = b"\n"
    for piece in repository.git.stream("cat-file", "blob", valid_commit(blob)):
        text = end + piece
        if wanted.search(text):
            return True
        end = text[-overlap:]
    return False


def committed_names(repository: Repository, *, commit: str, folder: str) -> list[str]:
    """Return the sorted names of the regular files in a folder of a commit; [] without that folder."""
    listed = repository.git.run(
        "ls-tree", "-z", "--full-tree", valid_commit(commit), "--", folder.rstrip("/") + "/"
    )
    lines = [line for line in listed.decode("utf-8", errors="replace").split("\0") if line.startswith("100")]
    return sorted(line.split("\t", 1)[1].rsplit("/", 1)[-1] for line in lines)


def working_names(workspace: Path, folder: str) -> list[str]:
    """Return the names of the regular files in a folder of a workspace, sorted; links are not followed.

    The agent may be running: the page of its sequence shows these names.
    """
    with suppress(OSError), open_folder(workspace, folder) as descriptor, os.scandir(descriptor) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    return []


def working_text(workspace: Path, path: str, *, limit: int = TEXT_BYTES) -> str | None:
    """Return the beginning of a file of a workspace; None if the file is missing.

    Links are not followed: the agent may have made one that leads to a file of the portal.
    """
    with suppress(OSError), open_file(workspace, path) as file:
        return file.read(limit).decode("utf-8", errors="replace")
    return None


def linked_text(workspace: Path, path: str) -> str | None:
    """Return what `working_text` does, but follow links that stay in the workspace."""
    with suppress(OSError):
        return working_text(workspace, path_inside(workspace, path))
    return None


def replace_file(workspace: Path, name: str, content: bytes | None) -> bool:
    """Write a file in the root of a workspace in which no agent runs, or remove it (None).

    Return whether anything changed. A link is replaced and not followed; a folder, or anything else that is
    no file, stays.
    """
    with open_folder(workspace.parent, workspace.name) as root:
        kind = _file_type(root, name)
        if kind not in (None, stat.S_IFREG, stat.S_IFLNK) or (kind is None and content is None):
            return False
        if kind == stat.S_IFREG and content is not None:
            with open_file(root, name) as file:
                if file.read() == content:
                    return False
        if kind is not None:
            os.unlink(name, dir_fd=root)
        if content is not None:
            with create_file(root, name, mode=0o644) as file:
                file.write(content)
        return True


def _file_type(folder: int, name: str) -> int | None:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def blob_sizes(repository: Repository, blobs: Iterable[str]) -> dict[str, int]:
    """Return the size in bytes of each blob, by its id. Other ids are left out."""
    wanted = sorted({blob for blob in blobs if blob})
    if not wanted:
        return {}
    words = ("cat-file", "--batch-check=%(objecttype) %(objectsize)")
    listed = repository.git.run(*words, stdin=_lines_of(wanted)).decode().splitlines()
    found = zip(wanted, listed, strict=True)
    return {blob: int(line.split()[1]) for blob, line in found if line.startswith("blob ")}


def blob_contents(repository: Repository, blobs: Iterable[str]) -> dict[str, bytes]:
    """Return the content of each blob, by its id, with one process. The caller knows that they are small."""
    wanted = sorted({blob for blob in blobs if blob})
    if not wanted:
        return {}
    output = repository.git.run("cat-file", "--batch", stdin=_lines_of(wanted))
    contents, at = {}, 0
    for blob in wanted:
        header, at = output[at : output.index(b"\n", at)], output.index(b"\n", at) + 1
        if not header.endswith(b" missing"):
            size = int(header.split()[2])
            contents[blob], at = output[at : at + size], at + size + 1
    return contents


def _lines_of(blobs: Iterable[str]) -> bytes:
    return "".join(f"{valid_commit(blob)}\n" for blob in blobs).encode()

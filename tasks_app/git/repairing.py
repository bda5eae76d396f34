"""Finding and moving away damaged parts of the portal's own repository, so that a fetch can replace them.

After a power cut, or on a failing disk, references are empty files, objects and packs are truncated, or parts
are missing. git then refuses nearly every command, also the fetch that would repair the repository. So
damaged files are moved into a folder beside the repository, and never deleted. Intact files stay, and the
fetch asks for everything that the source has.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tasks_app.core.errors import WorkspaceError
from tasks_app.git.durable import sync_tree
from tasks_app.git.faults import damage_marker, is_damage
from tasks_app.git.program import Git

_HEX = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_PACKED = re.compile(r"(?P<commit>[0-9a-f]{40}|[0-9a-f]{64}) (?P<name>refs/\S+)|\^[0-9a-f]{40,64}|#.*|")
_PIECE = 1024 * 1024
#: Digits in the name of the file of an object; two more are that of its folder.
_OBJECT_NAME = 38
#: Bytes of the SHA-1 with which git ends a pack and its index.
_HASH_BYTES = 20
#: Enough for the whole history of a large repository.
_WALK_SECONDS = 3600.0
#: git makes these files again from the packs and objects.
_DERIVED = ("objects/info/commit-graph", "objects/info/commit-graphs", "objects/pack/multi-pack-index")


def problems(path: Path) -> list[str]:
    """Return all faults of the bare repository at `path`, each in a sentence; none if it is sound.

    Reads all packs, about a second for a gigabyte, and changes nothing. Raises WorkspaceError if git cannot
    read it for lack of memory or time.
    """
    if not path.is_dir():
        return [f"{path} is not a folder." if path.exists() else f"{path} does not exist."]
    if damaged := list(_damaged_files(path)):
        return [f"{file.relative_to(path)} is damaged." for file in damaged]
    try:
        Git(path).run("rev-list", "--objects", "--quiet", "--all", timeout=_WALK_SECONDS)
    except WorkspaceError as error:
        if not is_damage(str(error)):
            raise
        return [f"Objects are missing: {error}"]
    return []


def looks_damaged(path: Path) -> bool:
    """Return whether a power cut left empty or truncated files, or lost names.

    Reads all packs, but does not walk the history.
    """
    return next(_damaged_files(path), None) is not None or not is_readable(path)


def has_bad_references(path: Path) -> bool:
    """Return whether a reference is empty or unreadable: git ignores it as if it did not exist."""
    return next(_damaged_refs(path), None) is not None


def is_readable(path: Path) -> bool:
    """Check quickly whether git can read each reference, and finds the files of the source's branches."""
    if not path.is_dir() or damage_marker(path).exists() or has_bad_references(path):
        return False
    git = Git(path)
    try:
        git.run("for-each-ref", "--format=%(objecttype)")
        tips = git.run("for-each-ref", "--format=%(objectname)", "refs/source/")
        git.run("rev-list", "--objects", "--no-walk", "--quiet", "--stdin", stdin=tips)
    except WorkspaceError:
        return False
    return True


def clear_damage(path: Path) -> list[str]:
    """Move everything that cannot be read out of the repository. Return the paths inside it.

    Afterwards git works again in it, but objects may be missing until they are fetched. Raises OSError and
    WorkspaceError.
    """
    quarantine = _Quarantine(path)
    if path.exists() and not path.is_dir():
        quarantine.move(path)
        return quarantine.moved
    _restore_skeleton(path, quarantine)
    for damaged in list(_damaged_files(path)):
        quarantine.move(damaged)
    for name in _DERIVED:
        quarantine.move(path / name)
    _restore_packs(path, quarantine)
    # The complete lines of a damaged list of references are written anew.
    old = quarantine.folder / "packed-refs"
    if old.is_file():
        packed = _parse_packed_refs(_read_text(old))
        (path / "packed-refs").write_text("".join(f"{commit} {name}\n" for name, commit in packed))
    _drop_incomplete_refs(path, quarantine)
    sync_tree(path)
    return quarantine.moved


def drop_incomplete_refs(path: Path) -> list[str]:
    """Remove references whose history is incomplete, because of which git would fail. Return their names."""
    quarantine = _Quarantine(path)
    _drop_incomplete_refs(path, quarantine)
    return quarantine.moved


class _Quarantine:
    """The folder beside the repository for damaged files. It is made when something is moved into it."""

    def __init__(self, path: Path) -> None:
        self._root = path
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        self.folder = path.with_name(f"{path.name}.damaged-{stamp}")
        self.moved: list[str] = []

    def move(self, path: Path) -> None:
        if not (path.exists() or path.is_symlink()):
            return
        inside = path.relative_to(self._root) if path != self._root else Path(path.name)
        target = self.folder / inside
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.rename(target)
        self.moved.append(str(inside))

    def note_removed_ref(self, name: str, commit: str) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "removed-references").open("a") as file:
            file.write(f"{commit} {name}\n")
        self.moved.append(name)


def _restore_skeleton(path: Path, quarantine: _Quarantine) -> None:
    """Restore HEAD, config and the folders without which git does not recognise a repository."""
    head = path / "HEAD"
    if head.exists() and not re.fullmatch(r"ref: refs/\S+\n?|[0-9a-f]{40}\n?", _read_text(head)):
        quarantine.move(head)
    config = path / "config"
    if config.exists() and not _is_config(config):
        quarantine.move(config)
    for name in ("objects", "refs"):
        if (path / name).exists() and not (path / name).is_dir():
            quarantine.move(path / name)
    for lock in path.rglob("*.lock"):  # of a process that is gone: the caller holds the portal's own lock
        quarantine.move(lock)
    Git().run("init", "--quiet", "--bare", "--template=", "--", str(path))


def _is_config(config: Path) -> bool:
    try:
        Git().run("config", "--file", str(config), "--get", "core.bare")
    except WorkspaceError:
        return False
    return True


def _damaged_files(path: Path) -> Iterator[Path]:
    """Yield references, objects and packs that cannot be read."""
    yield from _damaged_refs(path)
    for folder in (path / "objects").glob("[0-9a-f][0-9a-f]"):
        for file in folder.iterdir():
            if len(file.name) == _OBJECT_NAME and not _is_object(file, folder.name + file.name):
                yield file
    for file in (path / "objects/pack").glob("pack-*.*"):
        if file.suffix in {".pack", ".idx", ".rev"} and not _ends_with_its_hash(file):
            yield file


def _damaged_refs(path: Path) -> Iterator[Path]:
    head = path / "HEAD"
    if not head.is_file() or not _read_text(head).strip():
        yield head
    yield from (ref for ref in _loose_refs(path) if not _contains_commit_id(ref))
    packed = path / "packed-refs"
    if packed.is_file() and not all(_PACKED.fullmatch(line) for line in _read_text(packed).split("\n")):
        yield packed


def _loose_refs(path: Path) -> Iterator[Path]:
    """Yield the files of references, without locks, which are empty while git writes."""
    return (file for file in (path / "refs").rglob("*") if file.is_file() and file.suffix != ".lock")


def _contains_commit_id(ref: Path) -> bool:
    """Return whether the reference is in order. True if it is gone: others may record and pack meanwhile."""
    try:
        return bool(_HEX.fullmatch(ref.read_text(encoding="utf-8", errors="replace").strip()))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_object(path: Path, name: str) -> bool:
    digest, unpacker = hashlib.sha1(usedforsecurity=False), zlib.decompressobj()
    try:
        with path.open("rb") as file:
            while piece := unpacker.unconsumed_tail or file.read(_PIECE):
                digest.update(unpacker.decompress(piece, _PIECE))
        digest.update(unpacker.flush())
    except FileNotFoundError:
        return True
    except (OSError, zlib.error):
        return False
    return unpacker.eof and digest.hexdigest() == name


def _ends_with_its_hash(path: Path) -> bool:
    """Return whether a pack, or its index, ends with the SHA-1 of its content, or is gone meanwhile."""
    digest = hashlib.sha1(usedforsecurity=False)
    try:
        with path.open("rb") as file:
            left = path.stat().st_size - _HASH_BYTES
            while left > 0 and (piece := file.read(min(_PIECE, left))):
                digest.update(piece)
                left -= len(piece)
            return left == 0 and file.read() == digest.digest()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _restore_packs(path: Path, quarantine: _Quarantine) -> None:
    """Index packs that have no index, and unpack the readable objects of damaged packs."""
    folder = path / "objects/pack"
    for pack in list(folder.glob("pack-*.pack")):
        if not pack.with_suffix(".idx").exists():
            try:
                Git(path).run("index-pack", str(pack))
            except WorkspaceError:
                quarantine.move(pack)
    for index in list(folder.glob("pack-*.idx")):
        if not index.with_suffix(".pack").exists():
            quarantine.move(index)
    for damaged in quarantine.folder.glob("objects/pack/*.pack"):
        with suppress(WorkspaceError, OSError), damaged.open("rb") as file:
            Git(path).run("unpack-objects", "-r", "-q", stdin=file)


def _parse_packed_refs(text: str) -> list[tuple[str, str]]:
    """Return name and commit of each complete line."""
    lines = (_PACKED.fullmatch(line) for line in text.split("\n"))
    return [(found["name"], found["commit"]) for found in lines if found and found["name"]]


def _drop_incomplete_refs(path: Path, quarantine: _Quarantine) -> None:
    git, complete = Git(path), list[str]()
    for name, commit in _all_refs(path):
        known = "".join(f"^{one}\n" for one in complete)  # their history need not be walked again
        try:
            order = f"{commit}\n{known}".encode()
            git.run("rev-list", "--objects", "--quiet", "--stdin", stdin=order, timeout=_WALK_SECONDS)
        except WorkspaceError as error:
            if not is_damage(str(error)):
                raise  # out of memory or time: the reference may be in order
            (path / name).unlink(missing_ok=True)
            packed = path / "packed-refs"
            if packed.is_file():
                lines = packed.read_text(errors="replace").split("\n")
                kept = [
                    line
                    for line in lines
                    if not line.endswith(f" {name}") and not line.startswith(("^", "#"))
                ]
                packed.write_text("\n".join(kept))
            quarantine.note_removed_ref(name, commit)
        else:
            complete.append(commit)


def _all_refs(path: Path) -> list[tuple[str, str]]:
    """Read the references from the files: git lists none while one of them names a missing object."""
    packed = _parse_packed_refs(_read_text(path / "packed-refs"))
    loose = {str(ref.relative_to(path)): _read_text(ref).strip() for ref in _loose_refs(path)}
    # The source's branches come first: they have the longest history, on which all others are based.
    refs = {**dict(packed), **loose}
    return sorted(refs.items(), key=lambda ref: (not ref[0].startswith("refs/source/"), ref[0]))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

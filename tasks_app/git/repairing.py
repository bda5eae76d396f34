"""Finding and removing what is damaged in the portal's own repository, so that a fetch can bring it again.

After a power cut, or on a failing disk, references are empty files, objects and packs lack bytes, or parts
are gone. git then refuses nearly every command, the repairing fetch included. So what is damaged is moved
into a folder beside the repository, never deleted; what is whole stays; and the fetch asks for everything
that the source has.
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
from tasks_app.git.program import Git, damage_note, tells_of_damage

_HEX = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_PACKED = re.compile(r"(?P<commit>[0-9a-f]{40}|[0-9a-f]{64}) (?P<name>refs/\S+)|\^[0-9a-f]{40,64}|#.*|")
_PIECE = 1024 * 1024
_HASH_BYTES = 20
#: For the whole history of a large repository.
_WALK_SECONDS = 3600.0
#: git makes these again from the packs and objects.
_DERIVED = ("objects/info/commit-graph", "objects/info/commit-graphs", "objects/pack/multi-pack-index")


def problems(path: Path) -> list[str]:
    """Everything that is wrong with the bare repository at `path`, each in a sentence; empty if it is sound.

    Reads all packs, about a second for a gigabyte, and changes nothing. Raises WorkspaceError if git cannot
    look through it for want of memory or time.
    """
    if not path.is_dir():
        return [f"{path} is not a folder." if path.exists() else f"{path} does not exist."]
    if broken := [place for place, _ in _unreadable(path)]:
        return [f"{place.relative_to(path)} is damaged." for place in broken]
    try:
        Git(path).run("rev-list", "--objects", "--quiet", "--all", timeout=_WALK_SECONDS)
    except WorkspaceError as error:
        if not tells_of_damage(str(error)):
            raise
        return [f"Objects are missing: {error}"]
    return []


def looks_damaged(path: Path) -> bool:
    """What a power cut leaves: empty or cut files, names that are gone. Reads all packs, walks no history."""
    return next(_unreadable(path), None) is not None or not is_readable(path)


def has_bad_references(path: Path) -> bool:
    """Whether a reference is an empty file or rubbish: git passes over it, as if it were not there."""
    return next(_bad_refs(path), None) is not None


def is_readable(path: Path) -> bool:
    """A quick look: whether git can read each reference, and finds the files of the source's branches."""
    if not path.is_dir() or damage_note(path).exists() or has_bad_references(path):
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
    """Move everything that cannot be read out of the repository; what it was, by its path inside.

    Afterwards git works in it again, but objects may be missing until they are fetched. Raises OSError and
    WorkspaceError.
    """
    aside = _Aside(path)
    if path.exists() and not path.is_dir():
        aside.take(path)
        return aside.taken
    _restore_frame(path, aside)
    for place, _ in list(_unreadable(path)):
        aside.take(place)
    for name in _DERIVED:
        aside.take(path / name)
    _index_packs(path, aside)
    _mend_packed_refs(path, aside)
    _drop_incomplete_refs(path, aside)
    sync_tree(path)
    return aside.taken


def drop_incomplete_refs(path: Path) -> list[str]:
    """Remove references whose history is not whole, which git would stumble over; their names."""
    aside = _Aside(path)
    _drop_incomplete_refs(path, aside)
    return aside.taken


class _Aside:
    """The folder beside the repository that gets what is damaged; made when something is put into it."""

    def __init__(self, path: Path) -> None:
        self._root = path
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        self.folder = path.with_name(f"{path.name}.damaged-{stamp}")
        self.taken: list[str] = []

    def take(self, place: Path) -> None:
        if not (place.exists() or place.is_symlink()):
            return
        inside = place.relative_to(self._root) if place != self._root else Path(place.name)
        target = self.folder / inside
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.rename(target)
        self.taken.append(str(inside))

    def note(self, name: str, text: str) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "removed-references").open("a") as file:
            file.write(f"{text}\n")
        self.taken.append(name)


def _restore_frame(path: Path, aside: _Aside) -> None:
    """HEAD, config and the folders without which git takes the folder for no repository."""
    head = path / "HEAD"
    if head.exists() and not re.fullmatch(r"ref: refs/\S+\n?|[0-9a-f]{40}\n?", _text(head)):
        aside.take(head)
    config = path / "config"
    if config.exists() and not _is_config(config):
        aside.take(config)
    for name in ("objects", "refs"):
        if (path / name).exists() and not (path / name).is_dir():
            aside.take(path / name)
    for lock in path.rglob("*.lock"):  # of a process that is gone: the caller holds the repository
        aside.take(lock)
    Git().run("init", "--quiet", "--bare", "--template=", "--", str(path))


def _is_config(config: Path) -> bool:
    try:
        Git().run("config", "--file", str(config), "--get", "core.bare")
    except WorkspaceError:
        return False
    return True


def _unreadable(path: Path) -> Iterator[tuple[Path, str]]:
    """Files that hold no reference, no object and no pack although they stand where one should be."""
    yield from ((place, "reference") for place in _bad_refs(path))
    yield from ((place, "object") for place in _bad_objects(path))
    yield from ((place, "pack") for place in _bad_packs(path))


def _bad_refs(path: Path) -> Iterator[Path]:
    head = path / "HEAD"
    if not head.is_file() or not _text(head).strip():
        yield head
    yield from (place for place in _loose_refs(path) if not _holds_a_commit(place))
    packed = path / "packed-refs"
    if packed.is_file() and not all(_PACKED.fullmatch(line) for line in _text(packed).split("\n")):
        yield packed


def _loose_refs(path: Path) -> Iterator[Path]:
    """Without the locks, which are empty while git writes."""
    return (place for place in (path / "refs").rglob("*") if place.is_file() and place.suffix != ".lock")


def _holds_a_commit(place: Path) -> bool:
    """True for a file that is gone meanwhile: recordings and tidying go on while somebody looks."""
    try:
        return bool(_HEX.fullmatch(place.read_text(encoding="utf-8", errors="replace").strip()))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _bad_objects(path: Path) -> Iterator[Path]:
    for folder in (path / "objects").glob("[0-9a-f][0-9a-f]"):
        for place in folder.iterdir():
            if len(place.name) == 2 * _HASH_BYTES - 2 and not _is_object(place, folder.name + place.name):
                yield place


def _is_object(place: Path, name: str) -> bool:
    digest, unpacker = hashlib.sha1(usedforsecurity=False), zlib.decompressobj()
    try:
        with place.open("rb") as file:
            while piece := unpacker.unconsumed_tail or file.read(_PIECE):
                digest.update(unpacker.decompress(piece, _PIECE))
        digest.update(unpacker.flush())
    except FileNotFoundError:
        return True
    except (OSError, zlib.error):
        return False
    return unpacker.eof and digest.hexdigest() == name


def _bad_packs(path: Path) -> Iterator[Path]:
    for place in (path / "objects/pack").glob("pack-*.*"):
        if place.suffix in {".pack", ".idx", ".rev"} and not _ends_with_its_hash(place):
            yield place


def _ends_with_its_hash(place: Path) -> bool:
    """Packs and their indexes end with the SHA-1 of all that is before it."""
    digest = hashlib.sha1(usedforsecurity=False)
    try:
        left = place.stat().st_size - _HASH_BYTES
        with place.open("rb") as file:
            while left > 0 and (piece := file.read(min(_PIECE, left))):
                digest.update(piece)
                left -= len(piece)
            return left == 0 and file.read() == digest.digest()
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _index_packs(path: Path, aside: _Aside) -> None:
    """A pack without its index gets one; of a damaged pack the objects before the damage are taken."""
    folder = path / "objects/pack"
    for pack in list(folder.glob("pack-*.pack")):
        if not pack.with_suffix(".idx").exists():
            try:
                Git(path).run("index-pack", str(pack))
            except WorkspaceError:
                aside.take(pack)
    for index in list(folder.glob("pack-*.idx")):
        if not index.with_suffix(".pack").exists():
            aside.take(index)
    for damaged in aside.folder.glob("objects/pack/*.pack"):
        with suppress(WorkspaceError, OSError), damaged.open("rb") as file:
            Git(path).run("unpack-objects", "-r", "-q", stdin=file)


def _mend_packed_refs(path: Path, aside: _Aside) -> None:
    """The whole lines of a list of references that was moved aside."""
    old = aside.folder / "packed-refs"
    if not old.is_file():
        return
    whole = [found for line in _text(old).split("\n") if (found := _PACKED.fullmatch(line)) and found["name"]]
    orders = "".join(f"{found['commit']} {found['name']}\n" for found in whole)
    (path / "packed-refs").write_text(orders)


def _drop_incomplete_refs(path: Path, aside: _Aside) -> None:
    git, whole = Git(path), list[str]()
    for name, commit in _all_refs(path):
        known = "".join(f"^{one}\n" for one in whole)  # their history need not be walked again
        try:
            order = f"{commit}\n{known}".encode()
            git.run("rev-list", "--objects", "--quiet", "--stdin", stdin=order, timeout=_WALK_SECONDS)
        except WorkspaceError as error:
            if not tells_of_damage(str(error)):
                raise  # out of memory or of time: nothing is known of this reference
            _remove_ref(path, name)
            aside.note(name, f"{commit} {name}")
        else:
            whole.append(commit)


def _all_refs(path: Path) -> list[tuple[str, str]]:
    """Read from the files: git lists none while one of them names an object that is missing."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in (path / "packed-refs").read_text(errors="replace").split("\n"):
            if (match := _PACKED.fullmatch(line)) and match["name"]:
                found[match["name"]] = match["commit"]
    for place in _loose_refs(path):
        found[str(place.relative_to(path))] = _text(place).strip()
    # The source's branches first: the longest history, on which all others are built.
    return sorted(found.items(), key=lambda ref: (not ref[0].startswith("refs/source/"), ref[0]))


def _remove_ref(path: Path, name: str) -> None:
    (path / name).unlink(missing_ok=True)
    packed = path / "packed-refs"
    if packed.is_file():
        lines = packed.read_text(errors="replace").split("\n")
        kept = [line for line in lines if not line.endswith(f" {name}") and not line.startswith(("^", "#"))]
        packed.write_text("\n".join(kept))


def _text(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

"""A worker host's side of large exchanges (M1): both go on where they broke off, also in another process.

What is downloaded grows in a file of the mirror, and what is uploaded grows in one of the portal. Each
request is for one piece, so that the portal checks the lease again and again, and no proxy sees a long one.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks_app.core.errors import TemporaryFault, WorkspaceError
from tasks_app.git.bundles import KEPT_SECONDS
from tasks_app.git.checksums import checksum_of, is_intact
from tasks_app.git.durable import temporary_name
from tasks_app.git.exchange_faults import UploadDamaged
from tasks_app.git.program import NETWORK_SECONDS
from tasks_app.sandbox.limits import format_size

if TYPE_CHECKING:
    from tasks_app.git.mirror import Key, Mirror

logger = logging.getLogger(__name__)

#: Maximum bytes of one request.
PIECE_BYTES = 8 * 1024**2
#: What is smaller is pushed in one go.
LARGE_BYTES = 8 * 1024**2
#: References to what was downloaded, until those of the portal are set.
RECEIVED = "refs/received"
#: Seconds within which git must have indexed what was downloaded, or packed what is to be uploaded.
_PACKING_SECONDS = 3600.0
#: Seconds before a transfer that has come further goes on.
_PAUSE = 1.0
#: A mirror says at most of so many of its commits that it has them.
_MOST_KNOWN = 10_000
#: Bytes between two lines in the log.
_REPORT_BYTES = 256 * 1024**2
#: requests drops what it has read of such a part when the connection breaks.
_READ = 4 * 1024
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{40})\.(\d{1,15})")


@dataclass(frozen=True)
class BundleId:
    """What identifies a bundle. The file that it is downloaded to is named by it."""

    name: str
    checksum: str
    size: int

    @classmethod
    def parse(cls, answer: bytes) -> BundleId:
        """Raises TemporaryFault."""
        try:
            given = json.loads(answer)
            return cls.of_file_name(f"{given['name']}.{given['checksum']}.{given['size']}")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TemporaryFault("The portal describes a bundle in another way than this version") from None

    @classmethod
    def of_file_name(cls, text: str) -> BundleId:
        """Raises ValueError."""
        if not (found := _NAME.fullmatch(text)):
            raise ValueError(text)
        return cls(found[1], found[2], int(found[3]))

    @property
    def file_name(self) -> str:
        return f"{self.name}.{self.checksum}.{self.size}"


def _downloads(mirror: Path) -> Iterator[tuple[Path, BundleId]]:
    for path in sorted((mirror / "downloads").glob("*")):
        with suppress(ValueError):
            yield path, BundleId.of_file_name(path.name)


def has_download(mirror: Path) -> bool:
    """Return whether the download of a bundle was begun."""
    return any(True for _ in _downloads(mirror))


def fetch_bundles(mirror: Mirror, key: Key, branch: str) -> None:
    """Download a bundle that was begun, or one with what lacks, and take what is in it.

    What arrived damaged is downloaded once more. After that, or if there is no bundle, the caller fetches the
    rest. Raises TemporaryFault if the connection breaks; the next call goes on. The mirror must be locked.
    """
    for _ in range(2):
        begun = next((bundle for _, bundle in _downloads(mirror.path)), None)
        bundle = begun or mirror.portal.bundle(key, _known_commits(mirror, branch))
        if bundle is None:
            return
        file = mirror.path / "downloads" / bundle.file_name
        if not _download(mirror, key, bundle, file):
            file.unlink(missing_ok=True)
            continue
        try:
            _take_bundle(mirror, bundle, file)
        except WorkspaceError as error:
            logger.warning("what was downloaded of %s is damaged: %s", mirror.name, error)
        else:
            return
        finally:
            file.unlink(missing_ok=True)


def _known_commits(mirror: Mirror, branch: str) -> list[str]:
    """Return commits that the portal's references may lead to: the newest ones, if there are many."""
    folders = ("refs/source", f"refs/cat-herder/{branch}", f"refs/cat-herder-base/{branch}", RECEIVED)
    words = ("--sort=-committerdate", f"--count={_MOST_KNOWN}", "--format=%(objectname)")
    return sorted(set(mirror.git.line("for-each-ref", *words, *folders).split()))


def _download(mirror: Mirror, key: Key, bundle: BundleId, file: Path) -> bool:
    """Return whether the file is complete; False if the portal has this bundle no more."""
    file.parent.mkdir(exist_ok=True)
    file.touch()
    progress = _Progress(f"fetching {mirror.name} from the portal", bundle.size)
    while (start := file.stat().st_size) < bundle.size:
        _require_space(mirror, 2 * bundle.size - start)
        try:
            if not _download_piece(mirror, key, bundle, file):
                return False
        except TemporaryFault:
            if file.stat().st_size == start:
                raise
            time.sleep(_PAUSE)
        progress.report(file.stat().st_size)
    return True


def _download_piece(mirror: Mirror, key: Key, bundle: BundleId, file: Path) -> bool:
    import requests  # every process imports this module, and few of them are on a worker host

    start = file.stat().st_size
    end = min(start + PIECE_BYTES, bundle.size)
    answer = mirror.portal.bundle_piece(key, bundle, start, end)
    if answer is None:
        return False
    try:
        with answer, file.open("ab", buffering=0) as out:
            for piece in answer.iter_content(_READ):
                out.write(piece[: bundle.size - out.tell()])
    except (requests.RequestException, OSError) as error:
        raise TemporaryFault(f"A bundle could not be downloaded ({type(error).__name__})") from error
    return True


def _require_space(mirror: Mirror, needed: int) -> None:
    free = shutil.disk_usage(mirror.path).free
    if free < needed:
        raise TemporaryFault(
            f"The disk is too full for the repository of {mirror.name}: {format_size(needed)} are needed,"
            f" {format_size(free)} are free"
        )


def _take_bundle(mirror: Mirror, bundle: BundleId, file: Path) -> None:
    """Let git check and index the bundle. References keep its commits until the fetch that follows has ended.

    They are in a folder of their own, so that no name can be a folder of another.
    """
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--")
    refspec = f"+refs/*:{RECEIVED}/{bundle.name}/*"
    mirror.git.run(*words, str(file), refspec, timeout=_PACKING_SECONDS)


def push_in_pieces(mirror: Mirror, key: Key, target: str) -> str | None:
    """Upload what the portal lacks of a commit, if it is large; return what its git says, else None.

    None also if the portal takes no uploads.
    An upload of the same task that was begun is ended before: even if the commit is another one, most of
    what a new recording has is in it. Raises TemporaryFault if the connection breaks; the next call goes on.
    """
    _remove_old_packs(mirror.path)
    for pack in sorted(_packs(mirror.path).glob(f"{key[0]}-*.pack")):
        begun_for = pack.stem.partition("-")[2]
        if not is_intact(pack):  # the power failed while it was written, or the disk does
            pack.unlink(missing_ok=True)
            continue
        try:
            messages = _upload(mirror, key, pack, begun_for)
        except WorkspaceError:
            pack.unlink(missing_ok=True)
            if begun_for == target:
                raise
            continue
        if begun_for == target or messages is None:
            return messages
    if (mirror.path / "shallow").exists() or _bytes_to_send(mirror, target) < LARGE_BYTES:
        return None
    pack = _packs(mirror.path) / f"{key[0]}-{target}.pack"
    _write_pack(mirror, key, target, pack)
    try:
        return _upload(mirror, key, pack, target)
    except WorkspaceError:
        pack.unlink(missing_ok=True)
        raise


def _packs(mirror: Path) -> Path:
    return mirror / "uploads"


def _remove_old_packs(mirror: Path) -> None:
    until = time.time() - KEPT_SECONDS
    for path in _packs(mirror).glob("*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < until:
                path.unlink()


def _bytes_to_send(mirror: Mirror, target: str) -> int:
    """Return about how many bytes the portal lacks: it has what references name here."""
    return int(mirror.git.line("rev-list", "--disk-usage", "--objects", target, "--not", "--all"))


def _write_pack(mirror: Mirror, key: Key, target: str, pack: Path) -> None:
    """Pack what the portal lacks, as it says now. Nothing in the pack needs an object that is not in it."""
    url = mirror.portal.repository_url(key)
    listed = mirror.portal.git(mirror).run("ls-remote", "--", url, timeout=NETWORK_SECONDS).decode()
    refs = [line.split() for line in listed.splitlines()]
    names = "".join(f"{name}\n" for name, _ in refs)
    found = mirror.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=names.encode())
    here = {line.split()[1] for line in found.decode().splitlines() if line.startswith("commit ")}
    # Without its tree git would leave out only what the parents of the target have. An upload that was broken
    # off, and another recording of the same files, have the same parent.
    own = {f"{name}^{{tree}}" for name, ref in refs if ref.startswith("refs/cat-herder") and name in here}
    known = sorted(here | own)
    with temporary_name(pack) as fresh, temporary_name(pack) as order:
        order.write_text("".join(f"{line}\n" for line in (target, *(f"^{one}" for one in known))))
        words = ("pack-objects", "--quiet", "--revs", "--delta-base-offset", "--stdout")
        with order.open("rb") as stdin, fresh.open("wb") as out:
            for piece in mirror.git.stream(*words, timeout=_PACKING_SECONDS, stdin=stdin):
                out.write(piece)
        fresh.replace(pack)


def _upload(mirror: Mirror, key: Key, pack: Path, target: str) -> str | None:
    """Upload the pack from where it broke off, and have it pushed; return what git says."""
    messages = _upload_file(mirror, key, pack, checksum_of(pack), target)
    pack.unlink(missing_ok=True)
    return messages


def is_large(file: Path) -> bool:
    """Return whether the file is sent in pieces."""
    return file.stat().st_size >= LARGE_BYTES


def send_content(mirror: Mirror, key: Key, content: Path) -> bool:
    """Upload a content of Git LFS from where it broke off. Return False if the portal takes no uploads of it.

    Raises TemporaryFault if the connection breaks; the next call goes on.
    """
    return _upload_file(mirror, key, content, content.name, "") is not None


def _upload_file(mirror: Mirror, key: Key, file: Path, name: str, target: str) -> str | None:
    """Upload a file and have it taken; return what git says, None if the portal is of an earlier version.

    What arrived damaged is sent once more.
    """
    try:
        taken = _send_pack(mirror, key, file, name)
        return mirror.portal.push_upload(key, name, target) if taken else None
    except UploadDamaged as error:
        logger.warning("task %s: %s", key[0], error)
        _send_pack(mirror, key, file, name)
        return mirror.portal.push_upload(key, name, target)


def _send_pack(mirror: Mirror, key: Key, pack: Path, name: str) -> bool:
    """Send pieces of a file until the portal has all of it. Return False if it takes no uploads."""
    size, before = pack.stat().st_size, -1
    progress = _Progress(f"task {key[0]}: sending its files to the portal", size)
    fault: TemporaryFault | None = None
    while True:
        state = mirror.portal.upload_state(key, name)
        if state is None:
            return False
        start, limit = state
        if size > limit:
            raise WorkspaceError("The pack exceeds maximum allowed size.")
        progress.report(start)
        if start >= size:
            return True
        if fault is not None and start <= before:
            raise fault
        before, fault = start, None
        try:
            mirror.portal.upload_piece(key, name, _read_piece(pack, start), start=start, total=size)
        except TemporaryFault as error:
            fault = error
            time.sleep(_PAUSE)  # the portal still stores what has arrived


def _read_piece(pack: Path, start: int) -> bytes:
    with pack.open("rb") as file:
        file.seek(start)
        return file.read(PIECE_BYTES)


def push_messages(answer: bytes) -> str:
    """Return the messages in the answer of git's `receive-pack`, a line each, as git would print them."""
    lines, at = list[str](), 0
    while at + 4 <= len(answer):
        try:
            length = int(answer[at : at + 4], 16)
        except ValueError:
            break
        band, text = answer[at + 4 : at + 5], answer[at + 5 : at + max(length, 4)]
        if band == b"\2":
            lines += [f"remote: {line}" for line in text.decode(errors="replace").splitlines()]
        at += max(length, 4)
    return "\n".join(lines)[-2000:]


class _Progress:
    """Says in the log how far a large transfer is, from time to time."""

    def __init__(self, what: str, size: int) -> None:
        self._what, self._size, self._next = what, size, 0

    def report(self, done: int) -> None:
        if self._size < LARGE_BYTES or (done < self._next and done < self._size):
            return
        self._next = done + _REPORT_BYTES
        logger.info("%s: %s of %s", self._what, format_size(done), format_size(self._size))

"""The file that a backup is: a compressed tar of small parts, written and read as a stream.

Long things (a table, the packed objects of a repository) are cut into parts, because tar wants to know how
long a member is before it is written, and nobody wants a second copy on the disk for that. The last member
has the digest of every other one, so that a file which was cut off or damaged cannot pass for a whole one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Self

from tasks_app.core.errors import BackupError

MANIFEST = "manifest.json"
SUMMARY = "summary.json"
#: Bytes of a part, before compression.
PART_BYTES = 8 * 1024 * 1024
_COMPRESSION = 3
#: A member that is longer was not written by `ArchiveWriter`, which cuts everything but single files.
_LONGEST_MEMBER = 256 * 1024 * 1024
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, OSError, UnicodeDecodeError)


class ArchiveWriter:
    """Writes members one after the other to a file that need not be seekable."""

    def __init__(self, file: IO[bytes], manifest: dict[str, Any]) -> None:
        self._zip = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION)
        self._tar = tarfile.open(fileobj=self._zip, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._digests: dict[str, str] = {}
        self.add(MANIFEST, _json(manifest))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, fault: type[BaseException] | None, *more: object) -> None:
        """What was not finished has no summary at its end, and so is never taken for whole."""
        if fault is None:
            return
        for one in (self._tar, self._zip):
            with suppress(OSError, ValueError):
                one.close()

    def add(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o600
        self._tar.addfile(member, io.BytesIO(data))
        self._digests[name] = hashlib.sha256(data).hexdigest()

    def add_parts(self, folder: str, pieces: Iterable[bytes]) -> None:
        """Add a stream of any length as `FOLDER/000001`, `FOLDER/000002` and so on; at least one part."""
        number, held = 1, bytearray()
        for piece in pieces:
            held += piece
            while len(held) >= PART_BYTES:
                self.add(f"{folder}/{number:06}", bytes(held[:PART_BYTES]))
                del held[:PART_BYTES]
                number += 1
        self.add(f"{folder}/{number:06}", bytes(held))

    def finish(self, summary: dict[str, Any]) -> None:
        """Write what `ArchiveReader` holds the members against. Nothing can be added afterwards."""
        self.add(SUMMARY, _json({**summary, "digests": self._digests}))
        self._tar.close()
        self._zip.close()


class ArchiveReader:
    """Reads a file that `ArchiveWriter` wrote; every fault of the file is a BackupError."""

    def __init__(self, file: IO[bytes], *, name: str) -> None:
        self._file = file
        self._name = name

    def manifest(self) -> dict[str, Any]:
        """The first member. Raises BackupError for a file that is no backup at all."""
        first = next(self.members(), None)
        if first is None or first[0] != MANIFEST:
            raise BackupError(f"{self._name} is not a backup of Cat Herder.")
        return self._object(first[1])

    def members(self) -> Iterator[tuple[str, bytes]]:
        """Each member's name and content, in the order written."""
        self._file.seek(0)
        with self._faults(), self._opened() as tar:
            for member in tar:
                if not member.isreg() or member.size > _LONGEST_MEMBER:
                    raise BackupError(f"{self._name} has a member that no backup has: {member.name!r}.")
                content = tar.extractfile(member)
                yield member.name, content.read() if content else b""

    @contextmanager
    def _opened(self) -> Iterator[tarfile.TarFile]:
        with gzip.GzipFile(fileobj=self._file, mode="rb") as unzipped:
            with tarfile.open(fileobj=unzipped, mode="r|") as tar:
                yield tar
            while unzipped.read(PART_BYTES):  # to its end, where gzip's own check stands
                pass

    def verified(self) -> dict[str, Any]:
        """What was said of the whole at its end, after every member was held against it.

        Raises BackupError for a file that is not whole.
        """
        digests: dict[str, str] = {}
        last: tuple[str, bytes] = ("", b"")
        for name, content in self.members():
            digests[name] = hashlib.sha256(content).hexdigest()
            last = (name, content)
        if MANIFEST not in digests:
            raise BackupError(f"{self._name} is not a backup of Cat Herder.")
        if last[0] != SUMMARY:
            raise BackupError(f"{self._name} is not whole: its end is missing.")
        summary = self._object(last[1])
        del digests[SUMMARY]
        if summary.get("digests") != digests:
            raise BackupError(f"{self._name} is damaged: its content is not what was written.")
        return summary

    def _object(self, content: bytes) -> dict[str, Any]:
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BackupError(f"{self._name} is damaged: a part of it is not readable.")
        return found

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGED as error:
            raise BackupError(f"{self._name} cannot be read as a backup: {error}.") from error


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode()

"""The file format of backups: a compressed tar of small parts, written and read as a stream.

Long content (a table, the packed objects of a repository) is split into parts, because tar needs the length
of a member before its content, and this avoids a second copy on the disk. The last member has the digests of
all others, so that a truncated or damaged file is recognised.
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
#: `ArchiveWriter` writes no longer members: it splits everything except single files.
_MAX_MEMBER = 256 * 1024 * 1024
_READ_ERRORS = (tarfile.TarError, EOFError, zlib.error, OSError, UnicodeDecodeError)


class ArchiveWriter:
    """Writes members to a file that need not be seekable."""

    def __init__(self, file: IO[bytes], manifest: dict[str, Any]) -> None:
        self._zip = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION)
        self._tar = tarfile.open(fileobj=self._zip, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._digests: dict[str, str] = {}
        self.add(MANIFEST, _to_json(manifest))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, fault: type[BaseException] | None, *more: object) -> None:
        """Close the file after an error; without the summary it is not taken for complete."""
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
        """Write the summary with the digests. Nothing can be added afterwards."""
        self.add(SUMMARY, _to_json({**summary, "digests": self._digests}))
        self._tar.close()
        self._zip.close()


class ArchiveReader:
    """Reads a file that `ArchiveWriter` wrote; every error in the file raises BackupError."""

    def __init__(self, file: IO[bytes], *, name: str) -> None:
        self._file = file
        self._name = name

    def manifest(self) -> dict[str, Any]:
        """Return the first member. Raises BackupError if the file is not a backup."""
        first = next(self.members(), None)
        if first is None or first[0] != MANIFEST:
            raise BackupError(f"{self._name} is not a backup of Cat Herder.")
        return self._parse_object(first[1])

    def members(self) -> Iterator[tuple[str, bytes]]:
        """Yield each member's name and content, in order."""
        self._file.seek(0)
        with self._backup_errors(), self._open() as tar:
            for member in tar:
                if not member.isreg() or member.size > _MAX_MEMBER:
                    raise BackupError(f"{self._name} has a member that no backup has: {member.name!r}.")
                content = tar.extractfile(member)
                yield member.name, content.read() if content else b""

    @contextmanager
    def _open(self) -> Iterator[tarfile.TarFile]:
        with gzip.GzipFile(fileobj=self._file, mode="rb") as unzipped:
            with tarfile.open(fileobj=unzipped, mode="r|") as tar:
                yield tar
            while unzipped.read(PART_BYTES):  # to the end, where gzip checks its checksum
                pass

    def verify(self) -> dict[str, Any]:
        """Check every member and return the summary. Raises BackupError for an incomplete or damaged file."""
        digests: dict[str, str] = {}
        last: tuple[str, bytes] = ("", b"")
        for name, content in self.members():
            digests[name] = hashlib.sha256(content).hexdigest()
            last = (name, content)
        if MANIFEST not in digests:
            raise BackupError(f"{self._name} is not a backup of Cat Herder.")
        if last[0] != SUMMARY:
            raise BackupError(f"{self._name} is incomplete: its end is missing.")
        summary = self._parse_object(last[1])
        del digests[SUMMARY]
        if summary.get("digests") != digests:
            raise BackupError(f"{self._name} is damaged: its content is not what was written.")
        return summary

    def _parse_object(self, content: bytes) -> dict[str, Any]:
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BackupError(f"{self._name} is damaged: a part of it is not readable.")
        return found

    @contextmanager
    def _backup_errors(self) -> Iterator[None]:
        try:
            yield
        except _READ_ERRORS as error:
            raise BackupError(f"{self._name} cannot be read as a backup: {error}.") from error


def _to_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode()

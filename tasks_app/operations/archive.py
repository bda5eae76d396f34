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
import os
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from django.conf import settings
from django.db import connections
from django.db.models.functions import Now

from tasks_app.core.amounts import counted
from tasks_app.core.errors import BackupError, WorkspaceError
from tasks_app.core.files import create_file
from tasks_app.core.phases import Phase
from tasks_app.core.version import version
from tasks_app.git.durable import sync_folder
from tasks_app.models import Project, Task, paths
from tasks_app.operations import repositories, rows
from tasks_app.operations.health import applied_migrations

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
        try:
            with gzip.GzipFile(fileobj=self._file, mode="rb") as unzipped:
                with tarfile.open(fileobj=unzipped, mode="r|") as tar:
                    for member in tar:
                        if not member.isreg() or member.size > _MAX_MEMBER:
                            raise BackupError(
                                f"{self._name} has a member that no backup has: {member.name!r}."
                            )
                        content = tar.extractfile(member)
                        yield member.name, content.read() if content else b""
                while unzipped.read(PART_BYTES):  # to the end, where gzip checks its checksum
                    pass
        except _READ_ERRORS as error:
            raise BackupError(f"{self._name} cannot be read as a backup: {error}.") from error

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


def _to_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode()


# Write a backup while the portal runs.
#
# Rows are written first, from one snapshot, then repositories: these only grow, so they contain every commit
# of the snapshot. Workspaces are left out: they are recreated from the last recorded commit, and the portal
# must not follow links in files that agents write.


FORMAT = 1
PRODUCT = "cat-herder"
#: Attempts, and seconds between them, to find a moment at which no halted task is still being recorded.
_SNAPSHOT_ATTEMPTS, _SNAPSHOT_PAUSE = 20, 0.5
#: Salt of the digest by which secret keys are compared.
_KEY_SALT = b"cat-herder-backup:"

Say = Callable[[str], None]


@dataclass
class BackupSummary:
    """The content of a written backup. `warnings` are sentences for people."""

    rows: dict[str, int] = field(default_factory=dict)
    repositories: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    size: int = 0


def key_digest(key: str) -> str:
    return hashlib.sha256(_KEY_SALT + key.encode()).hexdigest()


def write_backup(target: Path, *, say: Say, overwrite: bool = False, with_key: bool = True) -> BackupSummary:
    """Write a backup to `target`, readable only by this user; it gets its name when it is complete.

    On BackupError, an existing file stays.
    """
    if target.is_dir():
        raise BackupError(f"{target} is a folder: name a file.")
    if target.exists() and not overwrite:
        raise BackupError(f"{target} already exists: choose another name, or use --force.")
    unfinished = target.with_name(target.name + ".part")
    try:
        with create_file(unfinished.parent, unfinished.name, mode=0o600, overwrite=True) as file:
            descriptor = file.fileno()
            os.fchmod(descriptor, 0o600)  # an old file may have other permissions
            written = stream_backup(file, say=say, with_key=with_key)
            file.flush()
            os.fsync(descriptor)
            say("Verifying.")
            ArchiveReader(file, name=str(target)).verify()
            written.size = os.fstat(descriptor).st_size
        unfinished.replace(target)
        sync_folder(target.parent)
        return written
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def stream_backup(file: IO[bytes], *, say: Say, with_key: bool = True) -> BackupSummary:
    """Write a backup to a file that need not be seekable. Raises BackupError."""
    for attempt in range(_SNAPSHOT_ATTEMPTS):
        with rows.snapshot() as alias:
            # Waiting tasks whose worker still records the workspace, which takes seconds after a halt.
            held = Task._base_manager.using(alias).filter(lease_expires__gt=Now())
            unrecorded = list(held.filter(phase=Phase.WAITING_FOR_INPUT).values_list("pk", flat=True))
            if not unrecorded or attempt == _SNAPSHOT_ATTEMPTS - 1:
                return _write_all(file, alias, unrecorded, say=say, with_key=with_key)
        time.sleep(_SNAPSHOT_PAUSE)
    raise AssertionError("unreachable")


def _write_all(
    file: IO[bytes], alias: str, unrecorded: list[int], *, say: Say, with_key: bool
) -> BackupSummary:
    dumped = rows.dumped_models()
    written = BackupSummary()
    written.warnings += [
        f"Task {task} is waiting, but its files were still being recorded: recent files may be missing."
        for task in unrecorded
    ]
    with ArchiveWriter(file, _manifest(dumped, with_key=with_key)) as archive:
        for model in dumped:
            label = model._meta.label_lower
            archive.add_parts(
                f"rows/{label}", _count_rows(rows.dump_rows(model, alias=alias), label, written, say)
            )
        named = rows.commits_by_project(alias)
        for project in Project._base_manager.using(alias).order_by("pk"):
            _write_repository(archive, project, named.get(project.pk, set()), written, say)
        if key := _key_file(with_key):
            archive.add("files/secret_key", key.read_bytes())
        top = paths.data_dir()
        for folder in (top / "sample", *sorted(top.glob("tasks/*/answers"))):
            for path in _regular_files(folder):
                with suppress(FileNotFoundError):  # removed meanwhile
                    archive.add(f"files/{path.relative_to(top)}", path.read_bytes())
        archive.finish(
            {
                "rows": written.rows,
                "repositories": written.repositories,
                "warnings": written.warnings,
                "last_numbers": rows.last_ids(connections[alias], dumped),
            }
        )
    return written


def _manifest(dumped: list[rows.Model], *, with_key: bool) -> dict[str, Any]:
    return {
        "product": PRODUCT,
        "format": FORMAT,
        "version": version(),
        "made_at": datetime.now(UTC).isoformat(),
        "database": connections["default"].vendor,
        "data_dir": str(paths.data_dir()),
        "migrations": sorted(map(list, applied_migrations())),
        "fields": {
            model._meta.label_lower: [one.attname for one in rows.fields_of(model)] for model in dumped
        },
        "secret_key": "included" if _key_file(with_key) else "left out",
        "key_digest": key_digest(settings.SECRET_KEY),
    }


def _count_rows(found: Iterator[bytes], label: str, written: BackupSummary, say: Say) -> Iterator[bytes]:
    written.rows[label] = 0
    for line in found:
        written.rows[label] += 1
        if written.rows[label] % 50_000 == 0:
            say(f"{label}: {written.rows[label]:,} rows")
        yield line


def _write_repository(
    archive: ArchiveWriter, project: Project, named: set[str], written: BackupSummary, say: Say
) -> None:
    repository = paths.repository(project)
    if not repository.path.exists():
        written.warnings.append(f"Project {project.name} has no repository in the data directory.")
        return
    say(f"Repository of {project.name}")
    folder = f"repositories/{repository.path.name}"
    try:
        with repository.exclusive():
            held = repositories.contents(repository, named)
            archive.add(f"{folder}/refs", held.refs.encode())
            if held.tips:
                archive.add_parts(f"{folder}/pack", repositories.pack_objects(repository, held.tips))
            if shallow := repositories.shallow_commits(repository):
                archive.add(f"{folder}/shallow", shallow.encode())
            for name, pieces in repositories.lfs_files(repository):
                archive.add_parts(f"{folder}/lfs/{name}", pieces)
    except WorkspaceError as error:
        raise BackupError(f"The repository of project {project.name} cannot be read: {error}") from error
    refs = len(held.refs.splitlines())
    written.repositories[repository.path.name] = {"refs": refs, "commits": len(held.commits)}
    if held.missing:
        few = ", ".join(sorted(held.missing)[:3])
        written.warnings.append(
            f"Project {project.name}: its repository lacks {counted(len(held.missing), 'commit')} of tasks "
            f"({few})."
        )


def _key_file(with_key: bool) -> Path | None:
    """Return the key file, if the key is to be included and is in the data directory."""
    path = paths.data_dir() / "secret_key"
    if with_key and not settings.ENVIRONMENT.secret_key and path.exists():
        return path
    return None


def _regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files of a folder that only the portal writes."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                yield path

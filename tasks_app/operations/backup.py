"""Write a backup while the portal runs.

Rows are written first, from one snapshot, then repositories: these only grow, so they contain every commit of
the snapshot. Workspaces are left out: they are recreated from the last recorded commit, and the portal must
not follow links in files that agents write.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import connections
from django.db.models.functions import Now

from tasks_app.core.errors import BackupError, WorkspaceError
from tasks_app.core.nofollow import create_file
from tasks_app.core.phases import Phase
from tasks_app.core.version import version
from tasks_app.git.durable import sync_folder
from tasks_app.models import Project, Task, paths
from tasks_app.operations import repositories, rows
from tasks_app.operations.archive import ArchiveReader, ArchiveWriter
from tasks_app.operations.health import applied_migrations

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
        return _write_and_verify(target, unfinished, say=say, with_key=with_key)
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _write_and_verify(target: Path, unfinished: Path, *, say: Say, with_key: bool) -> BackupSummary:
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


def stream_backup(file: IO[bytes], *, say: Say, with_key: bool = True) -> BackupSummary:
    """Write a backup to a file that need not be seekable. Raises BackupError."""
    for attempt in range(_SNAPSHOT_ATTEMPTS):
        with rows.snapshot() as alias:
            unrecorded = _tasks_being_recorded(alias)
            if not unrecorded or attempt == _SNAPSHOT_ATTEMPTS - 1:
                return _write_all(file, alias, unrecorded, say=say, with_key=with_key)
        time.sleep(_SNAPSHOT_PAUSE)
    raise AssertionError("unreachable")


def _tasks_being_recorded(alias: str) -> list[int]:
    """Return waiting tasks whose worker still records the workspace, which takes seconds after a halt."""
    held = Task._base_manager.using(alias).filter(lease_expires__gt=Now())
    return list(held.filter(phase=Phase.WAITING_FOR_INPUT).values_list("pk", flat=True))


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
        _write_files(archive, with_key=with_key)
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
            f"Project {project.name}: {len(held.missing)} commit(s) of tasks are missing in its "
            f"repository ({few})."
        )


def _key_file(with_key: bool) -> Path | None:
    """Return the key file, if the key is to be included and is in the data directory."""
    path = paths.data_dir() / "secret_key"
    return path if with_key and not settings.ENVIRONMENT.secret_key and path.exists() else None


def _write_files(archive: ArchiveWriter, *, with_key: bool) -> None:
    if key := _key_file(with_key):
        archive.add("files/secret_key", key.read_bytes())
    top = paths.data_dir()
    for folder in (top / "sample", *sorted(top.glob("tasks/*/answers"))):
        for path in _regular_files(folder):
            with suppress(FileNotFoundError):  # removed meanwhile
                archive.add(f"files/{path.relative_to(top)}", path.read_bytes())


def _regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files of a folder that only the portal writes."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent) / name for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                yield path

"""Restore an installation: prepare it beside the existing data, then exchange both.

Nothing is changed before the new database and repositories are complete, and nothing is deleted: existing
data is moved aside. The portal must not run meanwhile: its processes would use the wrong rows and files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connections

from tasks_app.core.errors import BackupError, CatHerderError
from tasks_app.core.types import Json
from tasks_app.git.program import Git
from tasks_app.models import Installation, Project, User, paths
from tasks_app.operations import new_database, repositories, rows
from tasks_app.operations.archive import FORMAT, MANIFEST, PRODUCT, SUMMARY, ArchiveReader, key_digest
from tasks_app.operations.health import needed_migrations
from tasks_app.operations.open_services import hold_data_dir, live_workers
from tasks_app.operations.repositories import commits_in
from tasks_app.operations.rows import commits_by_project, set_last_ids
from tasks_app.services.data_directory import ID_FILE

#: Content of the data directory besides SQLite's files.
_DATA = ("repositories", "tasks", "sequences", "sample", "secret_key", ID_FILE)
#: Files that an unused installation has too.
_ALWAYS_PRESENT = ("secret_key", ID_FILE)
#: The queue is moved aside too, because its jobs refer to tasks of the old database.
_QUEUE = ("huey.sqlite3", "huey.sqlite3-wal", "huey.sqlite3-shm")
_REPOSITORY = re.compile(r"[0-9]+(-[0-9a-f]+)?\.git")

Say = Callable[[str], None]


@dataclass
class Restored:
    """The outcome of a restore; `aside` has the new places of previous data."""

    made_at: str
    rows: int = 0
    repositories: int = 0
    aside: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Verified:
    """A complete and undamaged backup."""

    reader: ArchiveReader
    manifest: dict[str, Any]
    summary: dict[str, Any]


@contextmanager
def open_backup(path: Path) -> Iterator[Verified]:
    """Open and verify the backup at `path`. Raises BackupError."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        if not path.is_file():
            raise BackupError(f"{path} is not a plain file, and a backup is read more than once.")
        reader = ArchiveReader(file, name=str(path))
        manifest = reader.manifest()
        if manifest.get("product") != PRODUCT:
            raise BackupError(f"{path} is not a backup of Cat Herder.")
        if manifest.get("format") != FORMAT or rows.schema_of(manifest) - needed_migrations():
            version = manifest.get("version") or "unknown"
            raise BackupError(
                f"{path} was made by a newer version of Cat Herder ({version}): install that one first."
            )
        yield Verified(reader, manifest, reader.verify())


def restore(path: Path, *, say: Say, replace: bool = False) -> Restored:
    """Restore the data directory and the database from the backup `path`.

    Raises BackupError, without changes, if the portal runs, if there is data and `replace` is not given, or
    if the backup cannot be used.
    """
    lock = hold_data_dir(paths.data_dir())
    if lock is None:
        raise BackupError(f"The portal runs on {paths.data_dir()}: stop it first.")
    with lock, open_backup(path) as backup:
        if workers := live_workers():
            raise BackupError(
                f"Workers are connected to this database ({', '.join(workers)}): stop them first. One that "
                "was killed is forgotten after 15 seconds."
            )
        if not replace and not _is_empty():
            raise BackupError(
                "There are already projects or users. --replace moves all data aside and restores."
            )
        return _restore_verified(backup, say=say)


def _is_empty() -> bool:
    try:
        rows = User.objects.exists() or Project.objects.exists()
    except DatabaseError:
        rows = False
    return not rows and not any(
        (paths.data_dir() / name).exists() for name in _DATA if name not in _ALWAYS_PRESENT
    )


def _restore_verified(backup: Verified, *, say: Say) -> Restored:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    fresh = paths.data_dir() / f"restoring-{stamp}"
    fresh.mkdir(mode=0o700)
    result = Restored(backup.manifest["made_at"])
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(new_database.new_database(fresh, stamp))
            _load_members(backup, connection.alias, fresh, result, say)
            say("Checking the restored data.")
            _upgrade_rows(connection.alias, backup, fresh, result)
            _require_complete(backup, connection.alias, fresh, result)
        aside = paths.data_dir() / f"before-restore-{stamp}"
        result.aside += new_database.exchange_database(fresh, aside, stamp)
        result.aside += _exchange_files(fresh, aside)
        _compare_keys(backup, result)
        os.sync()
    except (OSError, DatabaseError) as error:
        raise BackupError(f"The backup cannot be restored: {' '.join(str(error).split())}.") from error
    finally:
        with suppress(CatHerderError):
            paths.remove_folder(fresh)
        new_database.drop_new_database(stamp)
    return result


def _load_members(backup: Verified, alias: str, fresh: Path, result: Restored, say: Say) -> None:
    """Load every member, rows first."""
    loader = rows.Loader(connections[alias], backup.manifest, new_data_dir=paths.data_dir())
    members = ((name, data) for name, data in backup.reader.members() if name not in (MANIFEST, SUMMARY))
    with loader.transaction():
        for (kind, what), parts in groupby(members, key=lambda member: _split_name(member[0])):
            if kind == "rows":
                count = loader.load(what, (data for _, data in parts))
                result.rows += count
                if count:
                    say(f"{what}: {count:,} rows")
            elif kind == "repositories":
                say(f"Repository {what}")
                _restore_repository(fresh, what, parts)
                result.repositories += 1
            else:
                for name, data in parts:
                    _restore_file(fresh, name.removeprefix("files/"), data)


def _split_name(name: str) -> tuple[str, str]:
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or parts[0] not in ("rows", "repositories", "files"):
        raise BackupError(f"The backup has a part that this version does not know: {name!r}.")
    return parts[0], parts[1]


def _restore_repository(fresh: Path, repository_name: str, parts: Iterator[tuple[str, bytes]]) -> None:
    if not _REPOSITORY.fullmatch(repository_name):
        raise BackupError(f"The backup has a repository with an invalid name: {repository_name!r}.")
    made, pack = fresh / "repositories" / repository_name, fresh / "pack"
    texts = {"refs": "", "shallow": ""}
    pack.unlink(missing_ok=True)
    with pack.open("wb") as file:
        for name, data in parts:
            kind, inside = (*PurePosixPath(name).parts[2:], "", "")[:2]
            if kind in texts:
                texts[kind] = data.decode()
            elif kind == "lfs":
                repositories.append_lfs(made, inside, data)
            else:
                file.write(data)
    repositories.restore_repository(made, pack=pack if pack.stat().st_size else None, **texts)
    pack.unlink()


def _restore_file(fresh: Path, name: str, data: bytes) -> None:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or inside.parts[0] not in _DATA:
        raise BackupError(f"The backup has a file with an invalid path: {name!r}.")
    path = fresh / inside
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_bytes(data)


def _upgrade_rows(alias: str, backup: Verified, fresh: Path, result: Restored) -> None:
    """Migrate rows of an older version, and adapt them to this installation."""
    # First: a migration adds rows, such as Django's for a new table.
    set_last_ids(connections[alias], backup.summary["last_numbers"])
    call_command("migrate", database=alias, verbosity=0, interactive=False)
    row = Installation._base_manager.using(alias).first()
    if row is not None:  # older versions had none; then the commits show that both belong together
        (fresh / ID_FILE).write_text(f"{row.identity}\n", encoding="ascii")
    rows.adapt_rows(connections[alias], backup.manifest, new_data_dir=paths.data_dir())
    result.warnings += backup.summary.get("warnings", [])


def _require_complete(backup: Verified, alias: str, fresh: Path, result: Restored) -> None:
    """Raise BackupError unless all rows were loaded and all their commits exist."""
    expected = sum(backup.summary["rows"].values())
    if result.rows != expected:
        raise BackupError(f"The backup has {expected:,} rows, but {result.rows:,} were loaded.")
    named = commits_by_project(alias)
    for project in Project._base_manager.using(alias).all():
        name = paths.repository(project).path.name
        if held := backup.summary["repositories"].get(name):
            there = commits_in(Git(fresh / "repositories" / name), named.get(project.pk, set()))
            if len(there) < held["commits"]:
                missing = held["commits"] - len(there)
                raise BackupError(f"Project {project.name}: {missing} commits are missing in its repository.")


def _exchange_files(fresh: Path, aside: Path) -> list[str]:
    """Exchange the existing files for the new ones; return where the old ones are."""
    top = paths.data_dir()
    for name in (*_DATA, *_QUEUE):
        if name == "secret_key" and not (fresh / name).exists():
            continue  # the backup has none: keep the existing one
        if (top / name).exists():
            aside.mkdir(mode=0o700, exist_ok=True)
            shutil.move(top / name, aside / name)
        if (fresh / name).exists():
            shutil.move(fresh / name, top / name)
    return [str(aside)] if aside.exists() else []


def _compare_keys(backup: Verified, result: Restored) -> None:
    path = paths.data_dir() / "secret_key"
    key = settings.ENVIRONMENT.secret_key
    if not key and path.exists():
        key = path.read_text().strip()
    if key_digest(key or "") != backup.manifest.get("key_digest"):
        result.warnings.append(
            "The secret key differs from that of the backup. Set CATHERDER_SECRET_KEY to that one, or enter "
            "the URLs of webhooks and chats again and let all users set up their second factor again."
        )


def summary_of(path: Path) -> dict[str, Json]:
    """Return a summary of a backup for `restore --list`. Raises BackupError."""
    with open_backup(path) as backup:
        summary = {name: backup.manifest.get(name) for name in ("made_at", "version", "database", "data_dir")}
        return {
            **summary,
            "secret_key": backup.manifest.get("secret_key"),
            "rows": backup.summary["rows"],
            "repositories": backup.summary["repositories"],
            "warnings": backup.summary["warnings"],
        }

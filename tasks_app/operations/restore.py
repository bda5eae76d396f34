"""`restore FILE`: an installation from a backup, put together beside what is there and then exchanged for it.

Nothing is changed before the new database and the new repositories are complete, and nothing is deleted at
all: what was there is moved aside. The portal must not run meanwhile; its processes would go on with rows
and files that are no longer theirs.
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
from tasks_app.operations import loading as moved
from tasks_app.operations import new_database as target
from tasks_app.operations import repositories
from tasks_app.operations.archive import MANIFEST, SUMMARY, ArchiveReader
from tasks_app.operations.backup import FORMAT, PRODUCT, key_digest
from tasks_app.operations.health import needed_migrations
from tasks_app.operations.portal_lock import hold_data_dir, live_workers
from tasks_app.operations.repositories import commits_in
from tasks_app.operations.rows import commits_by_project
from tasks_app.services.data_directory import ID_FILE

#: What the portal keeps in its data directory, besides SQLite's files. The queue is only a doorbell, but its
#: jobs name tasks of the old database.
_KEPT = ("repositories", "tasks", "sequences", "sample", "secret_key", ID_FILE)
#: What an installation has that was never used.
_ALWAYS_THERE = ("secret_key", ID_FILE)
_QUEUE = ("huey.sqlite3", "huey.sqlite3-wal", "huey.sqlite3-shm")
_REPOSITORY = re.compile(r"[0-9]+(-[0-9a-f]+)?\.git")

Say = Callable[[str], None]


@dataclass
class Restored:
    """What a restore made; `aside` is where the data that were there before lie now, if there were any."""

    made_at: str
    rows: int = 0
    repositories: int = 0
    aside: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Verified:
    """A backup that was read to its end and is whole."""

    reader: ArchiveReader
    manifest: dict[str, Any]
    summary: dict[str, Any]


@contextmanager
def opened(path: Path) -> Iterator[Verified]:
    """The backup at `path`, after all of it was held against its digests. Raises BackupError."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}.") from error
    with file:
        if not path.is_file():
            raise BackupError(f"{path} is not a plain file, and a backup is read more than once.")
        reader = ArchiveReader(file, name=str(path))
        manifest = reader.manifest()
        _require_known(manifest, path)
        yield Verified(reader, manifest, reader.verified())


def _require_known(manifest: dict[str, Any], path: Path) -> None:
    if manifest.get("product") != PRODUCT:
        raise BackupError(f"{path} is not a backup of Cat Herder.")
    unknown = {tuple(one) for one in manifest["migrations"]} - needed_migrations()
    if manifest.get("format") != FORMAT or unknown:
        version = manifest.get("version") or "unknown"
        raise BackupError(
            f"{path} was made by a newer version of Cat Herder ({version}): install that one first."
        )


def restore(path: Path, *, say: Say, replace: bool = False) -> Restored:
    """Make the data directory and the database what they were when the backup `path` was made.

    Raises BackupError, having changed nothing, if the portal runs, if there are data and `replace` is not
    given, or if the backup cannot be used.
    """
    lock = hold_data_dir(paths.data_dir())
    if lock is None:
        raise BackupError(f"The portal runs on {paths.data_dir()}: stop it first.")
    with lock, opened(path) as backup:
        if workers := live_workers():
            raise BackupError(
                f"Workers are connected to this database ({', '.join(workers)}): stop them first. One that "
                "was killed is forgotten after 15 seconds."
            )
        if not replace and not _is_empty():
            raise BackupError(
                "There are projects or people here already. --replace moves all data aside and restores."
            )
        return _restored(backup, say=say)


def _is_empty() -> bool:
    try:
        rows = User.objects.exists() or Project.objects.exists()
    except DatabaseError:
        rows = False
    return not rows and not any(
        (paths.data_dir() / name).exists() for name in _KEPT if name not in _ALWAYS_THERE
    )


def _restored(backup: Verified, *, say: Say) -> Restored:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    fresh = paths.data_dir() / f"restoring-{stamp}"
    fresh.mkdir(mode=0o700)
    result = Restored(backup.manifest["made_at"])
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(target.new_database(fresh, stamp))
            _read(backup, connection.alias, fresh, result, say)
            say("Checking what was made.")
            _finish_rows(connection.alias, backup, fresh, result)
            _check(backup, connection.alias, fresh, result)
        aside = paths.data_dir() / f"before-restore-{stamp}"
        result.aside += target.exchange_database(fresh, aside, stamp)
        result.aside += _exchange_files(fresh, aside)
        _compare_keys(backup, result)
        os.sync()
    except (OSError, DatabaseError) as error:
        raise BackupError(f"The backup cannot be restored: {' '.join(str(error).split())}.") from error
    finally:
        with suppress(CatHerderError):
            paths.remove_folder(fresh)
        target.drop_leftovers(stamp)
    return result


def _read(backup: Verified, alias: str, fresh: Path, result: Restored, say: Say) -> None:
    """Bring every member to its place, rows first."""
    loader = moved.Loader(connections[alias], backup.manifest, new_data_dir=paths.data_dir())
    members = ((name, data) for name, data in backup.reader.members() if name not in (MANIFEST, SUMMARY))
    with loader.transaction():
        for (kind, what), parts in groupby(members, key=lambda member: _place(member[0])):
            if kind == "rows":
                count = loader.load(what, (data for _, data in parts))
                result.rows += count
                if count:
                    say(f"{what}: {count:,} rows")
            elif kind == "repositories":
                say(f"Repository {what}")
                _make_repository(fresh, what, parts)
                result.repositories += 1
            else:
                for name, data in parts:
                    _make_file(fresh, name.removeprefix("files/"), data)


def _place(name: str) -> tuple[str, str]:
    parts = PurePosixPath(name).parts
    if len(parts) < 2 or parts[0] not in ("rows", "repositories", "files"):
        raise BackupError(f"The backup has a part that this version does not know: {name!r}.")
    return parts[0], parts[1]


def _make_repository(fresh: Path, name_of_it: str, parts: Iterator[tuple[str, bytes]]) -> None:
    if not _REPOSITORY.fullmatch(name_of_it):
        raise BackupError(f"The backup has a repository of a name that none has: {name_of_it!r}.")
    made, pack = fresh / "repositories" / name_of_it, fresh / "pack"
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
    repositories.make(made, pack=pack if pack.stat().st_size else None, **texts)
    pack.unlink()


def _make_file(fresh: Path, name: str, data: bytes) -> None:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or inside.parts[0] not in _KEPT:
        raise BackupError(f"The backup has a file that belongs nowhere: {name!r}.")
    path = fresh / inside
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_bytes(data)


def _finish_rows(alias: str, backup: Verified, fresh: Path, result: Restored) -> None:
    """Bring rows of an older version up to date, and end what cannot go on as it was."""
    call_command("migrate", database=alias, verbosity=0, interactive=False)
    row = Installation._base_manager.using(alias).first()
    if row is not None:  # an older version had none; then the commits prove that both belong together
        (fresh / ID_FILE).write_text(f"{row.identity}\n", encoding="ascii")
    moved.settle(connections[alias], backup.manifest, backup.summary, new_data_dir=paths.data_dir())
    result.warnings += backup.summary.get("warnings", [])


def _check(backup: Verified, alias: str, fresh: Path, result: Restored) -> None:
    """Raises BackupError unless all rows came in and every commit that they name is there."""
    expected = sum(backup.summary["rows"].values())
    if result.rows != expected:
        raise BackupError(f"The backup says that it has {expected:,} rows, and {result.rows:,} came in.")
    named = commits_by_project(alias)
    for project in Project._base_manager.using(alias).all():
        name = paths.repository(project).path.name
        if held := backup.summary["repositories"].get(name):
            there = commits_in(Git(fresh / "repositories" / name), named.get(project.pk, set()))
            if len(there) < held["commits"]:
                missing = held["commits"] - len(there)
                raise BackupError(f"Project {project.name}: {missing} commits are missing in its repository.")


def _exchange_files(fresh: Path, aside: Path) -> list[str]:
    """Move what is there aside and what was made to its place; where the old data lie now."""
    top = paths.data_dir()
    for name in (*_KEPT, *_QUEUE):
        if name == "secret_key" and not (fresh / name).exists():
            continue  # the backup has none: the one that is here stays
        if (top / name).exists():
            aside.mkdir(mode=0o700, exist_ok=True)
            shutil.move(top / name, aside / name)
        if (fresh / name).exists():
            shutil.move(fresh / name, top / name)
    return [str(aside)] if aside.exists() else []


def _compare_keys(backup: Verified, result: Restored) -> None:
    path = paths.data_dir() / "secret_key"
    key = settings.ENVIRONMENT.secret_key or (path.read_text().strip() if path.exists() else "")
    if key_digest(key) != backup.manifest.get("key_digest"):
        result.warnings.append(
            "The secret key here is not that of the backup. Set CATHERDER_SECRET_KEY to that one, or enter "
            "the addresses of webhooks and chats again and let everybody set up the second factor anew."
        )


def summary_of(path: Path) -> dict[str, Json]:
    """What a backup says of itself, as `restore --list` shows it. Raises BackupError."""
    with opened(path) as backup:
        told = {name: backup.manifest.get(name) for name in ("made_at", "version", "database", "data_dir")}
        return {
            **told,
            "secret_key": backup.manifest.get("secret_key"),
            "rows": backup.summary["rows"],
            "repositories": backup.summary["repositories"],
            "warnings": backup.summary["warnings"],
        }

"""Caches of setups: files that one task's setup made and other tasks of the project begin with (M5).

An entry is a folder that never changes: it appears under its name, complete, once a setup has succeeded, and
setups copy from it. A lock file beside it is held while it is filled (exclusively) and while it is copied
from (shared). The kernel releases the lock of a process that dies, so a killed worker leaves neither a
half-made entry nor a lock. Each host has caches of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.config.setup import SetupConfig
from tasks_app.core.errors import SetupFailed
from tasks_app.engine.crashpoints import crash_point
from tasks_app.git.durable import move_into_place
from tasks_app.git.files import committed_blob
from tasks_app.git.repository import Repository
from tasks_app.models.paths import remove_folder
from tasks_app.sandbox import Finished
from tasks_app.sandbox.watch import size_of_folder

_LOCK, _FRESH, _SIZE = ".lock", ".new", "size"
_POLL_SECONDS = 0.1
#: Copies each first of two paths that exists to the second. Copies share blocks where the disk can do that.
COPY_SCRIPT = (
    'set -eu; while [ $# -gt 0 ]; do if [ -e "$1" ] || [ -L "$1" ]; then rm -rf -- "$2"; '
    'mkdir -p -- "$(dirname -- "$2")"; cp -a --reflink=auto -- "$1" "$2"; fi; shift 2; done'
)


def key_of(
    config: SetupConfig, repository: Repository, commit: str, *, toolchains: Sequence[Sequence[str]] = ()
) -> str:
    """Return the key of the cache: the contents of its key files in the commit, and the setup itself.

    `toolchains` are names and versions of those that the setup uses: what one has built may not fit another.
    """
    if config.cache is None:
        return ""
    files = {name: committed_blob(repository, commit=commit, path=name) for name in config.cache.key}
    parts: Mapping[str, object] = {
        "files": files, "run": config.run, "paths": config.cache.paths, "system": list(os.uname())[::4],
        **({"toolchains": [list(one) for one in toolchains]} if toolchains else {}),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """The entry at `path`, which a setup has locked: it is there, or this setup may fill it."""

    path: Path
    hit: bool
    fills: bool = False

    @property
    def fresh(self) -> Path:
        return self.path.with_name(self.path.name + _FRESH)


@contextmanager
def locked_entry(path: Path, *, may_fill: bool, wait: Callable[[], None]) -> Iterator[CacheEntry]:
    """Yield the entry at `path`, which is not removed meanwhile.

    Of several setups that may fill it, one does, and the others wait; `wait` is called again and again, and
    may raise. If the one fails or dies, the next fills it. A setup that may not fill it does not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        if not may_fill and not path.is_dir():
            yield CacheEntry(path, hit=False)
            return
        with _try_lock(path, shared=path.is_dir()) as locked:
            # Somebody may have filled it, or removed it, between the look and the lock.
            if locked is not None and locked == path.is_dir():
                yield CacheEntry(path, hit=locked, fills=not locked)
                return
        wait()
        time.sleep(_POLL_SECONDS)


@contextmanager
def _try_lock(path: Path, *, shared: bool) -> Iterator[bool | None]:
    """Lock an entry and yield `shared`; None if another holds it, or its lock file was just removed."""
    lock = path.with_name(path.name + _LOCK)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        held = _flock(descriptor, shared=shared) and _is_same_file(descriptor, lock)
        yield shared if held else None
    finally:
        os.close(descriptor)


def _flock(descriptor: int, *, shared: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class CachedPaths:
    """The paths that a cache keeps, in one workspace and its setup's home; `copy` runs in the sandbox."""

    paths: tuple[str, ...]
    workspace: Path
    home: Path
    copy: Callable[[list[Path], CacheEntry], Finished]

    def restore(self, entry: CacheEntry) -> None:
        """Copy what the entry has into the workspace and the home. Raises SetupFailed."""
        pairs = [path for name in self.paths for path in (self._kept(entry.path, name), self._own(name))]
        if problem := _problem(self.copy(pairs, entry)):
            raise SetupFailed(f"The files of the setup's cache could not be copied: {problem}")
        os.utime(entry.path)  # the entry that was not used for the longest time is removed first

    def store(self, entry: CacheEntry, *, limit: int) -> str:
        """Fill the entry. Return why it was not filled, or ""."""
        remove_folder(entry.fresh)
        entry.fresh.mkdir()
        pairs = [path for name in self.paths for path in (self._own(name), self._kept(entry.fresh, name))]
        try:
            if problem := _problem(self.copy(pairs, entry)):
                return f"The cache was not filled: {problem}"
            crash_point("setup-cache-copied")
            size = size_of_folder(entry.fresh)
            if size > limit:
                return (
                    f"The cache was not filled: it would take {size:,} bytes, more than all may ({limit:,})."
                )
            (entry.fresh / _SIZE).write_text(str(size))
            move_into_place(entry.fresh, entry.path)
        finally:
            remove_folder(entry.fresh)
        return ""

    def _own(self, name: str) -> Path:
        return self.home / name[2:] if name.startswith("~/") else self.workspace / name

    def _kept(self, folder: Path, name: str) -> Path:
        return folder / "home" / name[2:] if name.startswith("~/") else folder / "workspace" / name


def _problem(done: Finished) -> str:
    if done.exit_code == 0:
        return ""
    return done.over_limit or done.output.strip()[-500:] or "it took too long"


def evict(caches: Path, *, limit: int) -> int:
    """Remove entries until all take at most `limit` bytes, and what killed workers left. Return how many.

    The one that was not used for the longest time goes first. Those in use stay.
    """
    for fresh in caches.glob(f"*/*{_FRESH}"):
        with _try_lock(fresh.with_suffix(""), shared=False) as locked:
            if locked is False:
                remove_folder(fresh)
    entries = sorted(_entries(caches))
    total = sum(size for _, size, _ in entries)
    removed = 0
    for _, size, path in entries:
        if total <= limit:
            break
        with _try_lock(path, shared=False) as locked:
            if locked is False and path.is_dir():
                # Under another name, nobody finds it half removed.
                path.rename(path.with_name(path.name + _FRESH))
                remove_folder(path.with_name(path.name + _FRESH))
                path.with_name(path.name + _LOCK).unlink(missing_ok=True)
                total -= size
                removed += 1
    return removed


def _entries(caches: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield each entry with the time of its last use and its size."""
    for path in (one for one in caches.glob("*/*") if not one.suffix):
        with suppress(OSError, ValueError):  # removed meanwhile, or no entry
            yield path.stat().st_mtime, int((path / _SIZE).read_text()), path

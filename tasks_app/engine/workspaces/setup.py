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
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from tasks_app.config.repository_settings import SetupConfig, setup_from_json
from tasks_app.core.errors import LeaseLost, SetupFailed
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable, storable_text
from tasks_app.core.types import least_network
from tasks_app.engine.checks import CheckReport, Shell, run_checks
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.stopping import Stopped, StopReason, Ticker
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.machine import toolchains_of
from tasks_app.git.durable import move_into_place
from tasks_app.git.files import committed_blob
from tasks_app.git.repository import Repository
from tasks_app.models import Change, ChangeKind, Setup, SetupCache, SetupOutcome, Task, paths
from tasks_app.models.paths import remove_folder
from tasks_app.sandbox import Finished, Sandbox
from tasks_app.sandbox import run as run_command
from tasks_app.sandbox.process_environment import search_path
from tasks_app.sandbox.watch import size_of_folder
from tasks_app.services.workers.hosts import most_network, runs_in_workspace

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
        if name.startswith("~/"):
            return self.home / name[2:]
        return self.workspace / name

    def _kept(self, folder: Path, name: str) -> Path:
        if name.startswith("~/"):
            return folder / "home" / name[2:]
        return folder / "workspace" / name


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


# Making a new workspace ready with the commands of the project's setup, before an agent works in it (M5).
#
# The commands come from the committed `cat-herder.yaml` and were copied to the task when it was created, so
# no agent can change them. They run in the sandbox like checks, with a home directory of their own, which
# agents and checks can read: tools put their downloads there, and links in the workspace may lead to them.
#
# A mark beside the workspace says that the setup has succeeded. It is removed with the workspace. A task
# whose workspace is made anew, here or on another host, runs its setup again.


logger = logging.getLogger(__name__)

#: Setups in a row whose worker died after which the task fails.
DEATHS = 5
#: The variable that tells commands whether the cache had what they need.
CACHE_HIT = "CAT_HERDER_CACHE_HIT"
#: As many as the page shows of a failure without scrolling.
_LAST_LINES = 10
_LAST_CHARACTERS = 4000
#: The exit code of a shell for a program that it does not find.
_NOT_FOUND = 127
_WHICH_PROGRAMS = (
    "\n\nA program was not found. The setup has the system's programs, those on the worker's PATH, and the"
    " toolchains that cat-herder.yaml names (toolchains). Install it on the machine of the worker, or name a"
    " label of a worker that has it (runsOn)."
)
_SAME_COMMANDS = (
    "\n\n“Resume” runs the same commands, those that were committed when the task was created: what was"
    " corrected in cat-herder.yaml since then has no effect on it. “Duplicate” begins a new task with the"
    " new commands."
)


def setup_folders(task: Task) -> tuple[Path, ...]:
    """Return the folders of the setup that agents and checks may read."""
    home = paths.setup_home(task)
    if task.setup is not None and home.is_dir():
        return (home,)
    return ()


def tool_variables(task: Task) -> Mapping[str, str]:
    """Return the variables of the task's toolchains, and a PATH with what its setup installed."""
    variables = toolchains_of(task).variables
    installed = [str(paths.placement().inside(home) / ".local/bin") for home in setup_folders(task)]
    if not installed:
        return variables
    return {**variables, "PATH": os.pathsep.join([*installed, variables.get("PATH") or search_path()])}


def run_setup(task: Task, lease: Lease, context: WorkerContext, *, when_done: Callable[[], None]) -> None:
    """Run the commands of the task's setup, unless they have made this workspace ready already.

    `when_done` is called after they have succeeded and before the workspace counts as ready. Raises
    SetupFailed, Stopped or LeaseLost.
    """
    if task.setup is None:
        return
    workspace = paths.workspace(task)
    digest = hashlib.sha256(json.dumps(task.setup, sort_keys=True).encode()).hexdigest()
    if workspace.is_ready(digest):
        return
    _close_crashed(task, lease)
    paths.setup_home(task).mkdir(parents=True, exist_ok=True)
    config = setup_from_json(task.setup)
    with _opened(task, lease, context) as setup:
        _SetupRun(setup, task, lease, context, _sandbox_for(config, context)).run_with_cache(config)
        when_done()
        workspace.mark_ready(digest)
    crash_point("setup-done")


def _sandbox_for(config: SetupConfig, context: WorkerContext) -> Sandbox:
    if least_network(config.network or "full", most_network()) == "full":
        return context.sandbox
    if not context.sandbox.keeps_network_out:
        why = context.sandbox.reason or context.sandbox.network_reason
        raise SetupFailed(f"The setup must run without the network, which is impossible here: {why}")
    return context.sandbox.without_network()


def _close_crashed(task: Task, lease: Lease) -> None:
    """Close the setup of a worker that died. Raises SetupFailed if workers die in it again and again."""
    with lease.locked():
        ended = {"outcome": SetupOutcome.CRASHED, "current": "", "ended_at": timezone.now()}
        task.setups.filter(outcome="").update(**ended)
    last = list(task.setups.order_by("-number")[:DEATHS])
    if len(last) < DEATHS or any(one.outcome != SetupOutcome.CRASHED for one in last):
        return
    reason = (
        f"The worker died {DEATHS} times in a row during the setup of the workspace. Look into the worker's"
        " log and the system's log (memory?), then resume the task."
    )
    with lease.locked():  # counting starts again when the task is resumed
        Setup.objects.filter(pk=last[0].pk).update(outcome=SetupOutcome.FAILED, problem=reason)
    raise SetupFailed(reason)


@contextmanager
def _opened(task: Task, lease: Lease, context: WorkerContext) -> Iterator[Setup]:
    """Store the beginning of a setup, and how it ended. After a lost lease the next holder stores that."""
    with lease.locked():
        newest = task.setups.aggregate(newest=Max("number"))["newest"] or 0
        setup = Setup.objects.create(
            task=task,
            number=newest + 1,
            sandboxed=context.sandbox.active,
            lease_epoch=lease.epoch,
            data_dir=paths.worker_data_dir_id(),
        )
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    crash_point("setup-opened")
    try:
        yield setup
    except LeaseLost:
        raise
    except Stopped as stopped:
        _close(setup, lease, SetupOutcome.STOPPED, f"It was stopped: {stopped.reason}.")
        raise
    except Exception as error:
        _close(setup, lease, SetupOutcome.FAILED, str(error))
        raise
    _close(setup, lease, SetupOutcome.DONE, "")


def _close(setup: Setup, lease: Lease, outcome: SetupOutcome, problem: str) -> None:
    with lease.locked():
        setup.outcome, setup.current = outcome, ""
        setup.problem, setup.ended_at = storable_text(problem), timezone.now()
        setup.save(update_fields=["outcome", "current", "problem", "ended_at"])
        Change.objects.create(task_id=setup.task_id, kind=ChangeKind.TASK)


@dataclass(frozen=True)
class _SetupRun:
    """The commands of one setup in its workspace."""

    setup: Setup
    task: Task
    lease: Lease
    context: WorkerContext
    sandbox: Sandbox

    def run_with_cache(self, config: SetupConfig) -> None:
        """Run the commands, with what the cache has in place. Raises SetupFailed.

        Only a workspace in which no agent has worked fills a cache: other tasks must not begin with what an
        agent wrote.
        """
        repository, limit = paths.repository(self.task.project), settings.ENVIRONMENT.setup_caches
        key = self._cache_key(config, repository) if limit else ""
        if not key or config.cache is None:
            self.run(config)
            return
        home, workspace = paths.setup_home(self.task), paths.workspace(self.task).path
        copying = partial(self._copy, timeout=float(config.timeout))
        cached = CachedPaths(config.cache.paths, workspace, home, copying)
        may_fill = not self.task.head_commit and not runs_in_workspace(self.task).exists()
        with locked_entry(
            paths.setup_caches_of(self.task.project) / key, may_fill=may_fill, wait=self._wait_for_cache
        ) as entry:
            if entry.hit:
                cached.restore(entry)
            self._note_cache(SetupCache.USED if entry.hit else SetupCache.UNUSED)
            self.run(config, cache_hit=entry.hit)
            if entry.fills and not (problem := cached.store(entry, limit=limit)):
                self._note_cache(SetupCache.FILLED)
            elif entry.fills:
                logger.warning("task %s: %s", self.task.pk, problem)
        if entry.fills:
            evict(paths.setup_caches(), limit=limit)

    def _cache_key(self, config: SetupConfig, repository: Repository) -> str:
        commit = self.task.head_commit or self.task.base_commit
        tools = [self.task.toolchains.split(","), *toolchains_of(self.task).versions]
        return key_of(config, repository, commit, toolchains=tools if self.task.toolchains else ())

    def _wait_for_cache(self) -> None:
        _tick(self.lease, self.context)
        self._note_cache(SetupCache.WAITS)

    def _note_cache(self, state: SetupCache) -> None:
        if self.setup.cache == state:
            return
        self.setup.cache = state
        with self.lease.locked():
            self.setup.save(update_fields=["cache"])
            Change.objects.create(task=self.task, kind=ChangeKind.TASK)

    def _copy(self, pairs: list[Path], entry: CacheEntry, *, timeout: float) -> Finished:
        """Copy files between the cache and the workspace in the sandbox, which links cannot leave."""
        workspace = paths.workspace(self.task).path
        command = self.context.sandbox.offline_if_possible().command(
            ["sh", "-c", COPY_SCRIPT, "copy", *(str(self.context.sandbox.inside(path)) for path in pairs)],
            workspace=workspace,
            home=paths.setup_home(self.task),
            env=self.lease.as_claim.variables(workspace),
            readable=[entry.path] if entry.hit else [],
            writable=[] if entry.hit else [entry.fresh],
        )
        ticker = Ticker(partial(_tick, self.lease, self.context))
        done = run_command(command, timeout=timeout, output_limit=4000, stop=ticker.should_stop)
        ticker.raise_problem()
        return done

    def run(self, config: SetupConfig, *, cache_hit: bool = False) -> None:
        """Run the commands in order. Raises SetupFailed at the first that fails."""
        for command in config.run:
            self._store(current=command)
            started = time.monotonic()
            report = self._report(Shell(command, timeout=float(config.timeout)), cache_hit=cache_hit)
            self.setup.reports.append(_as_json(command, report, seconds=time.monotonic() - started))
            self._store(current="")
            crash_point("setup-command-ended")
            if not report.passed:
                raise SetupFailed(_failure(report))

    def _report(self, command: Shell, *, cache_hit: bool) -> CheckReport:
        ticker = Ticker(partial(_tick, self.lease, self.context))
        workspace, tools = paths.workspace(self.task).path, toolchains_of(self.task)
        (report,) = run_checks(
            [command],
            workspace=workspace,
            sandbox=self.sandbox,
            home=paths.setup_home(self.task),
            # The next holder of the task finds processes of the setup by these variables and ends them.
            env={
                **tools.variables,
                **self.lease.as_claim.variables(workspace),
                CACHE_HIT: "true" if cache_hit else "false",
            },
            readable=tools.readable,
            stop=ticker.should_stop,
        )
        ticker.raise_problem()
        return report

    def _store(self, *, current: str) -> None:
        self.setup.current = current
        with self.lease.locked():
            self.setup.save(update_fields=["current", "reports"])
            Change.objects.create(task=self.task, kind=ChangeKind.TASK)


def _as_json(command: str, report: CheckReport, *, seconds: float) -> dict[str, object]:
    return {
        "command": command,
        "output": storable(report.output),
        "exit_code": report.exit_code,
        "problem": report.problem,
        "seconds": round(seconds, 1),
    }


def _failure(report: CheckReport) -> str:
    """Return why the setup failed. The output is last: what comes after it would look like a part of it."""
    lines = report.output[-_LAST_CHARACTERS:].strip().split("\n")[-_LAST_LINES:]
    output = "\n".join(lines)
    said = f"The last lines of its output:\n{output}" if output else "It printed nothing."
    advice = _WHICH_PROGRAMS if report.exit_code == _NOT_FOUND else ""
    return f"The setup of the workspace failed: {report.problem}{advice}{_SAME_COMMANDS}\n\n{said}"


def _tick(lease: Lease, context: WorkerContext) -> None:
    """Raise Stopped or LeaseLost if the work must not go on."""
    if reason := context.stop_signal():
        raise Stopped(reason)
    if (phase := lease.phase()) != Phase.RUNNING:
        is_taken_back = phase == Phase.WAITING_FOR_INPUT
        raise Stopped(StopReason.TAKEN_BACK if is_taken_back else StopReason.CANCELLED)

"""Making a new workspace ready with the commands of the project's setup, before an agent works in it (M5).

The commands come from the committed `cat-herder.yaml` and were copied to the task when it was created, so no
agent can change them. They run in the sandbox like checks, with a home directory of their own, which agents
and checks can read: tools put their downloads there, and links in the workspace may lead to them.

A mark beside the workspace says that the setup has succeeded. It is removed with the workspace. A task whose
workspace is made anew, here or on another host, runs its setup again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from tasks_app.config.setup import SetupConfig, setup_from_json
from tasks_app.core.errors import LeaseLost, SetupFailed
from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable, storable_text
from tasks_app.core.types import least_network
from tasks_app.engine.checks import CheckReport, Shell, run_checks
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.engine.ticker import Ticker
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.toolchains import toolchains_of
from tasks_app.engine.workspaces.setup_cache import (
    COPY_SCRIPT,
    CachedPaths,
    CacheEntry,
    evict,
    key_of,
    locked_entry,
)
from tasks_app.git import Repository
from tasks_app.models import Change, ChangeKind, Setup, SetupCache, SetupOutcome, Task, paths
from tasks_app.sandbox import Finished, Sandbox
from tasks_app.sandbox import run as run_command
from tasks_app.services.workers.hosts import most_network, runs_in_workspace

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
    return (home,) if task.setup is not None and home.is_dir() else ()


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
    with lease.locked():  # whoever resumes the task begins to count anew
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

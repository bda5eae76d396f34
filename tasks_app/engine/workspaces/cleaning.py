"""Removing the workspaces of tasks that ended long ago. Their work stays in the portal's repository."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.db.models import Q
from django.utils import timezone

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import ENDED, Phase
from tasks_app.engine.lease import Lease, keep_renewed
from tasks_app.engine.workspaces.recording import RECORDING_ERRORS, set_head
from tasks_app.models import Sequence, Task, paths
from tasks_app.sandbox import Limits, Sandbox
from tasks_app.services.workers.hosts import runs_in_workspace

logger = logging.getLogger(__name__)

OWNER = "cleaning"
#: Why a workspace is kept that somebody else works in, or cleans.
BUSY = "a worker works in it"


@dataclass(frozen=True)
class Cleaned:
    """The outcome for one workspace: `freed` bytes, or why it was `kept`.

    `late` is the command that shows changes made after the task's result was judged, empty if there are none.
    """

    task: Task
    path: Path
    freed: int = 0
    kept: str = ""
    late: str = ""


def clean_workspaces(*, older_than: timedelta, sandbox: Sandbox, dry_run: bool = False) -> Iterator[Cleaned]:
    """Remove workspaces (and agents' homes) of tasks that ended longer than `older_than` ago.

    Each workspace is recorded once more before; one that cannot be recorded is kept. The branch of a done
    task stays as it was judged. A task that is resumed later gets a new workspace from what was recorded.
    The limits for agents do not apply: people clean up because the disk is too full for them.
    """
    sandbox = sandbox.with_limits(Limits(), cgroup=None)
    for task in _candidates(older_than):
        path = paths.workspace(task).path
        if not path.exists():
            continue
        if dry_run:
            yield Cleaned(task, path, freed=_size_on_disk(path))
            continue
        with _held(task) as held:
            yield _clean(task, path, sandbox) if held else Cleaned(task, path, kept=BUSY)


def remove_half_made_clones() -> Iterator[Cleaned]:
    """Remove clones that killed workers never finished, of tasks that have ended since.

    The next worker of a task that goes on makes its clone anew.
    """
    for task in _candidates(timedelta(0)):
        path = paths.workspace(task).unfinished
        if not path.exists():
            continue
        with _held(task) as held:
            if held:
                size = _size_on_disk(path)
                paths.remove_folder(path)
                yield Cleaned(task, path, freed=size)


def _candidates(older_than: timedelta) -> list[Task]:
    """Return the last task of each workspace on this host whose tasks have all ended."""
    over = Q(phase__in=ENDED, ended_at__lt=timezone.now() - older_than)
    rows = Task.objects.filter(over).filter(Q(sequence=None) | Q(sequence__phase__in=ENDED))
    busy = Task.objects.exclude(phase__in=ENDED).exclude(sequence=None).values("sequence")
    idle = rows.exclude(sequence__in=busy).select_related("project", "sequence").order_by("pk")
    found: dict[Path, Task] = {}
    for ids in paths.ids_with_folders(Task):
        found |= {paths.workspace(task).path: task for task in idle.filter(pk__in=ids, sequence=None)}
    for ids in paths.ids_with_folders(Sequence):
        found |= {paths.workspace(task).path: task for task in idle.filter(sequence__in=ids)}
    return list(found.values())


@contextmanager
def _held(task: Task) -> Iterator[bool]:
    """Hold the lease of an ended task, so that nobody resumes it meanwhile. Yield whether that worked."""
    lease = Lease.claim_ended(task.pk, owner=OWNER)
    task.refresh_from_db(fields=["lease_epoch", "phase"])
    if lease is None:
        yield False
        return
    try:
        with keep_renewed(lease):  # recording and removing a large workspace may take minutes
            yield True
    finally:
        lease.release()


def _clean(task: Task, path: Path, sandbox: Sandbox) -> Cleaned:
    last_run = runs_in_workspace(task).last()
    if last_run is not None and last_run.data_dir != paths.worker_data_dir_id():
        return _remove(task, path, late="")
    if paths.portal_of_worker_host():
        if last_run is None or last_run.head_commit:  # the portal's host has it
            return _remove(task, path, late="")
        return Cleaned(task, path, kept=f"its last run is not recorded. If nobody needs that, remove {path}.")
    try:
        last = paths.workspace(task).snapshot(
            label=f"{task.pk}-last",
            sandbox=sandbox,
            recorded=task.head_commit or task.base_commit,
            message=task.title,
        )
    except RECORDING_ERRORS as error:
        return Cleaned(task, path, kept=f"its work cannot be recorded: {error}")
    if last.unrecorded:
        lost = " ".join(last.unrecorded)
        reason = f"a part of its work is not recorded: {lost} If nobody needs that, remove {path}."
        return Cleaned(task, path, kept=reason)
    return _remove(task, path, late=_publish_last(task, last.commit))


def _remove(task: Task, path: Path, *, late: str) -> Cleaned:
    freed, kept = 0, ""
    broken_git = paths.workspace(task).broken_git
    for folder in (path, broken_git, paths.home(task), paths.check_home(task), paths.setup_home(task)):
        size = _size_on_disk(folder)
        try:
            if folder.exists():
                paths.remove_folder(folder)
                freed += size
        except (
            WorkspaceError,
            OSError,
        ) as error:  # one folder that cannot be removed does not end the cleaning
            kept = str(error)
    return Cleaned(task, path, freed=freed, kept=kept, late=late)


def _publish_last(task: Task, commit: str) -> str:
    """Make the commit the task's result.

    A result that was judged already stays; then return the command that shows the later changes.
    """
    repository = paths.repository(task.project)
    if task.head_commit and repository.tree(commit) == repository.tree(task.head_commit):
        return ""
    if task.phase == Phase.DONE:
        return f"git -C {shlex.quote(str(repository.path))} diff {task.head_commit[:12]} {commit[:12]}"
    paths.workspace(task).publish(commit)
    set_head(task, commit)
    return ""


def _size_on_disk(folder: Path) -> int:
    """Return the bytes that the folder takes on the disk; links count as themselves."""
    return sum(
        (Path(where) / name).lstat().st_blocks * 512 for where, _, names in os.walk(folder) for name in names
    )

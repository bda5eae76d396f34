"""Removing the workspaces of tasks that ended long ago. What was done stays in the portal's repository."""

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
from tasks_app.engine.lease import Lease, kept
from tasks_app.engine.recording import UNRECORDED
from tasks_app.git import Snapshot
from tasks_app.models import Sequence, Task, paths
from tasks_app.sandbox import Limits, Sandbox

logger = logging.getLogger(__name__)

OWNER = "cleaning"


@dataclass(frozen=True)
class Cleaned:
    """A workspace that was looked at: `freed` bytes, or why it was `kept`.

    `late` says where changes are that were made after the task's result was judged; empty if there are none.
    """

    task: Task
    path: Path
    freed: int = 0
    kept: str = ""
    late: str = ""


def clean_workspaces(*, older_than: timedelta, sandbox: Sandbox, dry_run: bool = False) -> Iterator[Cleaned]:
    """Remove workspaces (and agents' homes) of tasks that ended longer than `older_than` ago.

    The work in each is recorded once more before; one that cannot be recorded is kept. The branch of a task
    that is done stays what was judged. A task that goes on afterwards gets a new workspace from what was
    recorded. Limits for agents do not hold here: a disk that
    is too full for them is why somebody cleans up.
    """
    sandbox = sandbox.limited(Limits(), cgroup=None)
    for task in _candidates(older_than):
        path = paths.workspace(task).path
        if not path.exists():
            continue
        if dry_run:
            yield Cleaned(task, path, freed=_size(path))
            continue
        with _held(task) as mine:
            yield (
                _clean(task, path, sandbox) if mine else Cleaned(task, path, kept="somebody is at work in it")
            )


def _candidates(older_than: timedelta) -> list[Task]:
    """The last task of each workspace, if all that use it have ended."""
    over = Q(phase__in=ENDED, ended_at__lt=timezone.now() - older_than)
    rows = Task.objects.filter(over).filter(Q(sequence=None) | Q(sequence__phase__in=ENDED))
    busy = Task.objects.exclude(phase__in=ENDED).exclude(sequence=None).values("sequence")
    found: dict[Path, Task] = {}
    for task in rows.exclude(sequence__in=busy).select_related("project", "sequence").order_by("pk"):
        found[paths.workspace(task).path] = task
    return list(found.values())


@contextmanager
def _held(task: Task) -> Iterator[bool]:
    """The lease of an ended task, so that nobody goes on with it meanwhile."""
    lease = Lease.claim_ended(task.pk, owner=OWNER)
    task.refresh_from_db(fields=["lease_epoch", "phase"])
    if lease is None:
        yield False
        return
    try:
        with kept(lease):  # recording and removing a large workspace may take minutes
            yield True
    finally:
        lease.release()


def _clean(task: Task, path: Path, sandbox: Sandbox) -> Cleaned:
    try:
        last = _recorded(task, sandbox)
    except UNRECORDED as error:
        return Cleaned(task, path, kept=f"its work cannot be recorded: {error}")
    if last.unrecorded:
        lost = " ".join(last.unrecorded)
        words = f"a part of its work is not recorded: {lost} If nobody needs that, remove {path}."
        return Cleaned(task, path, kept=words)
    late = _keep(task, last.commit)
    freed, kept = 0, ""
    broken_git = paths.workspace(task).broken_git
    for folder in (path, broken_git, paths.home(task), paths.check_home(task)):
        size = _size(folder)
        try:
            if folder.exists():
                paths.remove_folder(folder)
                freed += size
        except (WorkspaceError, OSError) as error:  # one stubborn folder does not end the cleaning
            kept = str(error)
    return Cleaned(task, path, freed=freed, kept=kept, late=late)


def _recorded(task: Task, sandbox: Sandbox) -> Snapshot:
    return paths.workspace(task).snapshot(
        label=_label(task), sandbox=sandbox, recorded=task.head_commit or task.base_commit, message=task.title
    )


def _label(task: Task) -> str:
    return f"{task.pk}-last"


def _keep(task: Task, commit: str) -> str:
    """Make it the task's result, unless that was judged already: then say where it is."""
    repository = paths.repository(task.project)
    if task.head_commit and repository.tree(commit) == repository.tree(task.head_commit):
        return ""
    if task.phase == Phase.DONE:
        return f"git -C {shlex.quote(str(repository.path))} diff {task.head_commit[:12]} {commit[:12]}"
    paths.workspace(task).publish(commit)
    Task.objects.filter(pk=task.pk).update(head_commit=commit)
    if task.sequence:
        Sequence.objects.filter(pk=task.sequence.pk).update(head_commit=commit)
    return ""


def _size(folder: Path) -> int:
    """Bytes on disk; links count as themselves."""
    return sum(
        (Path(where) / name).lstat().st_blocks * 512 for where, _, names in os.walk(folder) for name in names
    )

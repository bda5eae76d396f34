"""The workspace of a run before the run begins: made, repaired, or put back to an earlier commit.

A new one gets the submodules and contents of Git LFS that its project wants in it (M5).
"""

from __future__ import annotations

import logging
from functools import partial

from django.conf import settings

from tasks_app.core.errors import SubmodulesUnavailable, WorkspaceError
from tasks_app.core.text import storable_text
from tasks_app.engine.lease import Lease
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.machine import has_git_lfs, toolchains_of
from tasks_app.engine.workspaces.merging import merged_into
from tasks_app.engine.workspaces.recording import (
    RECORDING_ERRORS,
    add_note,
    commit_below,
    is_guarded,
    last_recorded,
    restore_lost_work,
    set_head,
    snapshot,
)
from tasks_app.engine.workspaces.setup import run_setup
from tasks_app.git import EMPTY_LIST, Snapshot
from tasks_app.git.lfs import LfsContents
from tasks_app.git.submodules import AllowedSources, Submodule, SubmoduleStore
from tasks_app.history.events.blocks import append_one
from tasks_app.models import EventKind, Outcome, Run, Step, Task, paths
from tasks_app.services.workers.hosts import runs_in_workspace

logger = logging.getLogger(__name__)


def prepare_workspace(step: Step, last: Run | None, lease: Lease, context: WorkerContext) -> None:
    """Make the folders and the clone if they are missing, and store which commit the step starts from.

    `last` is the last run in the workspace.
    """
    task = step.task
    toolchains_of(task)  # raises if this worker lacks one: nothing was spent yet
    for folder in (paths.home(task), paths.check_home(task), paths.answers_dir(task)):
        folder.mkdir(parents=True, exist_ok=True)
    if last is not None and last.data_dir != paths.worker_data_dir_id():
        # Another host has made the last run; the task goes on from the recorded commit.
        lease.phase()  # a worker that was suspended for long must not remove its successor's workspace
        paths.remove_folder(paths.workspace(task).path)
    if task.reset_to:
        _put_files_back(step, lease, context)
    restore_lost_work(step, lease, context)
    is_new = _make_usable(task, last, lease, context)
    run_setup(task, lease, context, when_done=partial(_store_base_after_setup, step, lease, context))
    if not step.base_commit:
        ignored = EMPTY_LIST
        if not is_new:
            # Empty if it cannot be listed. Then the step's guard does not look at ignored files, and says so.
            before = _snapshot_before(step, lease, context)
            ignored = before.manifest if before else ""
        with lease.fenced() as current:
            step.base_commit = last_recorded(current)
            if not is_new:
                step.base_commit = _left_by_last_run(current, last) or step.base_commit
            step.base_ignored = ignored
            step.save(update_fields=["base_commit", "base_ignored"])


def _store_base_after_setup(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Let a guarded step start from what the setup left, so that it is not blamed for that."""
    before = _snapshot_before(step, lease, context)
    if before is None:
        return
    begun = step.base_commit not in ("", last_recorded(step.task))
    if not begun:
        step.base_commit = before.commit
    step.base_ignored = before.manifest
    with lease.locked():
        step.save(update_fields=["base_commit", "base_ignored"])


def _make_usable(task: Task, last: Run | None, lease: Lease, context: WorkerContext) -> bool:
    """Make the clone, or repair its `.git` if an agent or a power cut damaged it. Return whether it is new.

    Files are never changed: they hold what is not recorded yet. `last` is the last run in the workspace.
    """
    workspace = paths.workspace(task)
    folder = workspace.path
    if last is None or folder.is_symlink() or not folder.is_dir() or not any(folder.iterdir()):
        _require_recorded(task)
        if last is not None and not last.head_commit:
            _give_up_unrecorded(task, last, lease)
        make_clone(task, last_recorded(task), below=commit_below(task))
        return True
    workspace.remove_locks()
    if last.outcome == Outcome.CRASHED:  # perhaps with the whole machine
        fault = workspace.git_fault(sandbox=context.sandbox, home=paths.home(task))
    else:
        fault = "" if workspace.has_usable_git() else "could not be read"
    if fault:
        below, sandbox = commit_below(task), context.sandbox
        note = workspace.renew_git(last_recorded(task), why=fault, below=below, sandbox=sandbox)
        add_note(last, lease, note)
    return False


def _give_up_unrecorded(task: Task, last: Run, lease: Lease) -> None:
    """Say that the run's work is lost with its workspace. If it had finished, the agent must run again.

    Otherwise the files of the commit before would be judged, and the task done without its work.
    """
    where = "on another host" if last.data_dir != paths.worker_data_dir_id() else "in a new workspace"
    recorded = last_recorded(task)[:10]
    note = (
        f"The task goes on {where}, with the files of commit {recorded}. What this run changed after that was"
        " not recorded."
    )
    with lease.locked():
        append_one(last, EventKind.NOTE, {"text": note})
        unjudged = Run.objects.filter(pk=last.pk, outcome=Outcome.FINISHED, checks__isnull=True)
        unjudged.update(outcome=Outcome.CRASHED)


def _require_recorded(task: Task) -> None:
    """Raise WorkspaceError if the task's last recorded commit is lost; its workspace is gone already."""
    if not task.head_commit or paths.repository(task.project).has(task.head_commit):
        return
    raise WorkspaceError(
        f"The work of this task is lost: its workspace is gone, and so is its last recorded commit"
        f" {task.head_commit[:10]} in the portal's repository. Retry from the first step and put the files"
        " back as they were before it."
    )


def _snapshot_before(step: Step, lease: Lease, context: WorkerContext) -> Snapshot | None:
    """Record the files before a guarded step, ignored ones included; None for others, and if it fails."""
    if not is_guarded(step):
        return None
    try:
        label = f"{step.task_id}-{step.position:02d}-before"
        return snapshot(step.task, context, lease, label=label, manifest=True)
    except RECORDING_ERRORS as error:
        if temporary_fault(error):
            raise
        logger.warning("task %s: the files before step %s: %s", step.task_id, step.name, error)
        note = f"The files before step {step.name} could not be recorded: {error}"
        add_note(runs_in_workspace(step.task).last(), lease, note)
        return None


def _left_by_last_run(task: Task, last: Run | None) -> str:
    """Return the commit that the last recorded run in the workspace, and its checks, left behind."""
    if last is None or not last.head_commit:
        last = runs_in_workspace(task).exclude(head_commit="").order_by("-pk").first()
    if last is None or last.head_commit != task.head_commit:  # the files were put back since
        return ""
    return last.checked_commit or last.head_commit


def _put_files_back(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Make the workspace anew at the commit that a person chose. What was in it stays under its own ref.

    It becomes a new clone: git in the old one could run programs that an agent left there. Every part can be
    repeated, because a worker may die between any two. From then on the workspace of the host that made the
    last run is outdated, even if no run begins here.
    """
    task, commit = step.task, step.task.reset_to
    workspace = paths.workspace(task)
    workspace.repository.commit(commit)  # raises if the commit is missing
    label = f"{task.pk}-{step.position:02d}-{step.runs.count() + 1}-replaced"
    if workspace.path.is_dir() and not workspace.has_snapshot(label):
        try:
            snapshot(task, context, lease, label=label)
        except RECORDING_ERRORS as error:
            if temporary_fault(error):
                raise
            # Keep them in another folder, so that a person can begin anew all the same.
            aside = workspace.path.with_name(f"{workspace.path.name}.{label}")
            workspace.path.rename(aside)
            note = f"The files before they were put back could not be recorded; they are in {aside}. {error}"
            add_note(runs_in_workspace(task).last(), lease, note)
    merged = merged_into(task, commit)
    with lease.locked():
        set_head(task, commit)
        Task.objects.filter(pk=task.pk).update(merged_commit=merged)
    lease.phase()  # a worker that was suspended for long must not remove its successor's workspace
    paths.remove_folder(workspace.path)
    make_clone(task, commit)
    workspace.publish(commit)
    with lease.locked():
        Step.objects.filter(pk=step.pk).update(base_commit=commit, base_ignored=EMPTY_LIST)
        Task.objects.filter(pk=task.pk).update(reset_to="")
        if last := runs_in_workspace(task).last():
            Run.objects.filter(pk=last.pk).update(data_dir=paths.worker_data_dir_id())
    step.base_commit, step.base_ignored = commit, EMPTY_LIST
    task.head_commit, task.reset_to, task.merged_commit = commit, "", merged


def make_clone(task: Task, commit: str, *, below: str = "") -> None:
    """Make the task's clone with the files of `commit`, unless there is one. Its HEAD is `below`, if given.

    Raises WorkspaceError, in words for people; SubmodulesUnavailable if another host may succeed.

    From where submodules and contents come is read in the commit that the task began from, or that was merged
    since: an agent cannot have the portal fetch from elsewhere.
    """
    declared_in = task.merged_commit or task.base_commit
    try:
        paths.workspace(task).create(
            base=commit,
            below=below,
            submodules=_submodules(task, commit, declared_in) if task.submodules else (),
            contents=_contents(task, declared_in) if task.lfs else None,
        )
    except WorkspaceError as error:
        if (text := storable_text(str(error))) != str(error):
            raise type(error)(text) from error
        raise


def _submodules(task: Task, commit: str, declared_in: str) -> tuple[Submodule, ...]:
    environment = settings.ENVIRONMENT
    allowed = AllowedSources(
        task.project.source,
        listed=environment.submodules,
        folders_hidden=(paths.data_dir(),),
        local=not environment.worker_token,
    )
    store = SubmoduleStore(paths.submodules_of(task.project), allowed)
    try:
        return store.fetch(paths.repository(task.project), commit, declared_in=declared_in)
    except WorkspaceError as error:
        raise SubmodulesUnavailable(str(error)) from error


def _contents(task: Task, needed_in: str) -> LfsContents:
    if not has_git_lfs():
        raise WorkspaceError(
            "The project wants contents of Git LFS (lfs: true in cat-herder.yaml). For that, this worker"
            " needs git-lfs and CATHERDER_GIT_FILTERS=lfs: otherwise what it records would have the contents"
            " in the place of their pointers."
        )
    return LfsContents(paths.repository(task.project), task.project.source, needed_in)

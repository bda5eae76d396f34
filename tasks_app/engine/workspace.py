"""The workspace of a run: making it before, recording it afterwards."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import SandboxError, WorkspaceError
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.merging import as_merge_commit, merged_into
from tasks_app.engine.new_clone import make_clone
from tasks_app.engine.record_again import RECORDED_AGAIN, restore_lost_work
from tasks_app.engine.setup import run_setup
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.toolchains import toolchains_of
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import AUTHOR, EMPTY_LIST, Snapshot
from tasks_app.history.events.append import append_one
from tasks_app.models import Change, ChangeKind, EventKind, Outcome, Run, Sequence, Step, Task, paths
from tasks_app.services.difference import base_of
from tasks_app.services.workspaces import is_outdated, runs_in_workspace

logger = logging.getLogger(__name__)

#: The errors of a recording that fails.
RECORDING_ERRORS = (WorkspaceError, SandboxError)
SHOWN_NAMES = 10


def prepare_workspace(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Make the folders and the clone if they are missing, and store which commit the step starts from."""
    task = step.task
    toolchains_of(task)  # raises if this worker lacks one: nothing was spent yet
    for folder in (paths.home(task), paths.check_home(task), paths.answers_dir(task)):
        folder.mkdir(parents=True, exist_ok=True)
    _remove_outdated(task, lease)
    if task.reset_to:
        _put_files_back(step, lease, context)
    restore_lost_work(step, lease, context)
    is_new = _make_usable(task, lease, context)
    run_setup(task, lease, context, when_done=partial(_store_base_after_setup, step, lease, context))
    if not step.base_commit:
        ignored = EMPTY_LIST if is_new else _ignored_before(step, lease, context)
        with lease.fenced() as current:
            left = "" if is_new else _left_by_last_run(current)
            step.base_commit = left or _last_recorded(current)
            step.base_ignored = ignored
            step.save(update_fields=["base_commit", "base_ignored"])


def _store_base_after_setup(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Let a guarded step start from what the setup left, so that it is not blamed for that."""
    before = _snapshot_before(step, lease, context)
    if before is None:
        return
    begun = step.base_commit not in ("", _last_recorded(step.task))
    step.base_commit = step.base_commit if begun else before.commit
    step.base_ignored = before.manifest
    with lease.locked():
        step.save(update_fields=["base_commit", "base_ignored"])


def _remove_outdated(task: Task, lease: Lease) -> None:
    """Remove a workspace that is older than the last run, which another host has made.

    The task goes on in a new one, made from the last recorded commit. What a run there left without recording
    it is lost with its host, and its log says so.
    """
    if not is_outdated(task):
        return
    lease.phase()  # a worker that was suspended for long must not remove its successor's workspace
    paths.remove_folder(paths.workspace(task).path)
    last = runs_in_workspace(task).last()
    if last is not None and not last.head_commit:
        note = (
            f"The task goes on on another host, with the files of commit {_last_recorded(task)[:10]}. What"
            " this run changed after that was not recorded."
        )
        _add_note(last, lease, note)


def _make_usable(task: Task, lease: Lease, context: WorkerContext) -> bool:
    """Make the clone, or repair its `.git` if an agent or a power cut damaged it. Return whether it is new.

    Files are never changed: they hold what is not recorded yet.
    """
    workspace = paths.workspace(task)
    last = runs_in_workspace(task).last()
    if last is None or not _holds_files(workspace.path):
        _require_recorded(task)
        make_clone(task, _last_recorded(task))
        return True
    workspace.remove_locks()
    if last.outcome == Outcome.CRASHED:  # perhaps with the whole machine
        fault = workspace.git_fault(sandbox=context.sandbox, home=paths.home(task))
    else:
        fault = "" if workspace.has_usable_git() else "could not be read"
    if fault:
        _add_note(last, lease, workspace.renew_git(_last_recorded(task), why=fault))
    return False


def _require_recorded(task: Task) -> None:
    """Raise WorkspaceError if the task's last recorded commit is lost; its workspace is gone already."""
    if not task.head_commit or paths.repository(task.project).has(task.head_commit):
        return
    raise WorkspaceError(
        f"The work of this task is lost: its workspace is gone, and so is its last recorded commit"
        f" {task.head_commit[:10]} in the portal's repository. Retry from the first step and put the files"
        " back as they were before it."
    )


def _holds_files(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and any(folder.iterdir())


def _last_recorded(task: Task) -> str:
    return task.head_commit or task.base_commit


def _ignored_before(step: Step, lease: Lease, context: WorkerContext) -> str:
    """List the ignored files that exist before a guarded step, so that the guard does not blame it for them.

    Empty if the list cannot be made. Then the step's guard does not look at ignored files, and says so.
    """
    before = _snapshot_before(step, lease, context)
    return before.manifest if before else ""


def _snapshot_before(step: Step, lease: Lease, context: WorkerContext) -> Snapshot | None:
    """Record the files before a guarded step, ignored ones included; None for others, and if it fails."""
    if not is_guarded(step):
        return None
    try:
        label = f"{step.task_id}-{step.position:02d}-before"
        return _snapshot(step.task, context, lease, label=label, manifest=True)
    except RECORDING_ERRORS as error:
        if temporary_fault(error):
            raise
        logger.warning("task %s: the files before step %s: %s", step.task_id, step.name, error)
        note = f"The files before step {step.name} could not be recorded: {error}"
        _add_note(runs_in_workspace(step.task).last(), lease, note)
        return None


def is_guarded(step: Step) -> bool:
    return step_from_json(step.config).allow_write is not None


def _has_guarded_step(task: Task) -> bool:
    return any(is_guarded(step) for step in task.steps.all())


def _snapshot(
    task: Task,
    context: WorkerContext,
    lease: Lease,
    *,
    label: str,
    message: str = "",
    publish: bool = False,
    manifest: bool = False,
) -> Snapshot:
    """Record the workspace. Raises LeaseLost before it publishes if another worker holds the task."""
    return paths.workspace(task).snapshot(
        label=label,
        sandbox=context.sandbox,
        recorded=_last_recorded(task),
        message=message or task.title,
        publish=publish,
        manifest=manifest,
        before_it_counts=lease.phase,
    )


def _add_note(run: Run | None, lease: Lease, note: str) -> None:
    """Add a sentence of the portal to the log of a run that has ended, if there is one."""
    if run is not None:
        with lease.locked():
            append_one(run, EventKind.NOTE, {"text": note})


def _left_by_last_run(task: Task) -> str:
    """Return the commit that the last run in the workspace, and its checks, left behind."""
    tasks = (
        Task.objects.filter(sequence=task.sequence) if task.sequence_id else Task.objects.filter(pk=task.pk)
    )
    last = Run.objects.filter(step__task__in=tasks).exclude(head_commit="").order_by("-pk").first()
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
            _snapshot(task, context, lease, label=label)
        except RECORDING_ERRORS as error:
            if temporary_fault(error):
                raise
            _move_aside(step, lease, label, error)
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


def _move_aside(step: Step, lease: Lease, label: str, error: Exception) -> None:
    """Keep files that cannot be recorded in another folder, so that a person can begin anew all the same."""
    old = paths.workspace(step.task).path
    aside = old.with_name(f"{old.name}.{label}")
    old.rename(aside)
    note = f"The files before they were put back could not be recorded; they are in {aside}. {error}"
    _add_note(runs_in_workspace(step.task).last(), lease, note)


def set_head(task: Task, commit: str) -> None:
    """Store the newest commit of the task, and of its sequence if it has one."""
    Task.objects.filter(pk=task.pk).update(head_commit=commit)
    if task.sequence_id:
        Sequence.objects.filter(pk=task.sequence_id).update(head_commit=commit)


def record_after_checks(run: Run, lease: Lease, context: WorkerContext) -> str:
    """Snapshot the workspace after the checks, so that the file guard ignores what checks wrote.

    Does nothing if no step of the task has a file guard. Returns why it failed, or "".
    """
    if not _has_guarded_step(run.step.task):
        return ""
    label = f"{run.step.task_id}-{run.step.position:02d}-{run.number}-checked"
    try:
        made = _snapshot(
            run.step.task, context, lease, label=label, message="After the checks", manifest=True
        )
    except RECORDING_ERRORS as error:
        if temporary_fault(error):
            raise
        logger.warning("task %s: %s", run.step.task_id, error)
        return str(error)
    with lease.locked():
        run.checked_commit, run.checked_ignored = made.commit, made.manifest
        run.save(update_fields=["checked_commit", "checked_ignored"])
    return ""


def record_work(run: Run, lease: Lease, context: WorkerContext) -> str:
    """Snapshot the workspace as the agent left it, for the diff and for people who fetch the branch.

    Returns why it failed, or "". A run whose work is not recorded must not count as done.
    """
    step = run.step
    label = f"{step.task_id}-{step.position:02d}-{run.number}"
    try:
        made = _snapshot(
            step.task,
            context,
            lease,
            label=label,
            message=_commit_message(step),
            publish=True,
            manifest=_has_guarded_step(step.task),
        )
        made = as_merge_commit(run, made, label=label, context=context)
    except RECORDING_ERRORS as error:
        if temporary_fault(error):
            raise
        logger.warning("task %s: %s", step.task_id, error)
        with lease.locked():  # an answer may have been noted in the run since it halted
            append_one(run, EventKind.ERROR, {"text": f"The work could not be recorded: {error}"})
        return str(error)
    _store_snapshot(run, lease, made)
    crash_point("work-recorded")
    return ""


def _commit_message(step: Step) -> str:
    """Return the message of a recorded commit, which becomes one of the task's branch with `autoCommit`."""
    if step.task.auto_commit:
        return f"chore({step.name}): checkpoint"
    return f"{step.task.title}\n\nStep {step.name}."


def _store_snapshot(run: Run, lease: Lease, made: Snapshot) -> None:
    step = run.step
    with lease.fenced() as current:
        recorded_again = [note for note in current.left_out if note.startswith(RECORDED_AGAIN)]
        left_out = [*recorded_again, *made.notes, *_ignored_notes(made)]
        run.head_commit, run.head_ignored = made.commit, made.manifest
        run.save(update_fields=["head_commit", "head_ignored"])
        Step.objects.filter(pk=step.pk).update(head_commit=made.commit)
        set_head(current, made.commit)
        for note in left_out:
            if note not in current.left_out:  # say it once, not after each run
                append_one(run, EventKind.NOTE, {"text": note})
        Task.objects.filter(pk=current.pk).update(left_out=left_out)
        Change.objects.create(task=current, kind=ChangeKind.TASK)  # there is a diff to see now
    step.head_commit = made.commit
    step.task.head_commit, step.task.left_out = made.commit, left_out


def _ignored_notes(made: Snapshot) -> list[str]:
    """Name the files that git ignores: checks see them, but people who fetch the branch do not get them."""
    if not made.ignored:
        return []
    names = ", ".join(made.ignored_names[:SHOWN_NAMES])
    more = f" and {made.ignored - SHOWN_NAMES} more" if made.ignored > SHOWN_NAMES else ""
    return [f"Not part of the result, because .gitignore names it: {names}{more}. Checks saw it."]


def tidy_repository(task_id: int) -> None:
    """Pack what many recordings left in the portal's repository, which slows down the next recording.

    It runs after the work, when nobody waits for it.
    """
    task = Task.objects.select_related("project").filter(pk=task_id).first()
    try:
        if task is not None:
            paths.repository(task.project).tidy()
    except (WorkspaceError, OSError) as error:
        logger.warning("task %s: its repository could not be tidied: %s", task_id, error)


def publish_without(name: str, run: Run, lease: Lease) -> None:
    """Publish the judged commit, with the file `name` as it was when the task began.

    It is made from the commit and not from the workspace, where checks have left files since. The snapshot
    after the checks gets the same file, so that a later task of the sequence is not blamed for it.
    """
    step = run.step
    result = _without(name, run, step.task.head_commit, label="result", publish=True)
    checked = _without(name, run, run.checked_commit, label="result-checked") if run.checked_commit else ""
    with lease.fenced() as task:
        set_head(task, result)
        run.head_commit, run.checked_commit = result, checked
        run.save(update_fields=["head_commit", "checked_commit"])
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    step.task.head_commit = result


def _without(name: str, run: Run, commit: str, *, label: str, publish: bool = False) -> str:
    task, workspace = run.step.task, paths.workspace(run.step.task)
    made = workspace.repository.with_entry_of(
        commit, name, base_of(task), author=AUTHOR, message=_commit_message(run.step)
    )
    workspace.set_snapshot(made, label=f"{task.pk}-{label}", publish=publish)
    return made


def commit_for_sequence(task: Task, context: WorkerContext) -> None:
    """Move the clone's HEAD to this task's commit, so that the next task of the sequence builds on it.

    Each recording is one commit on top of the clone's HEAD. If HEAD stayed where the sequence began, the
    work of all tasks would be one commit with the title of the last task.
    """
    task.refresh_from_db(fields=["head_commit"])
    if not task.head_commit:
        return
    try:
        note = paths.workspace(task).commit(task.head_commit, sandbox=context.sandbox, home=paths.home(task))
    except WorkspaceError as error:  # the work is recorded all the same
        note = str(error)
    if note:
        logger.warning("task %s: %s", task.pk, note)


def commit_checkpoint(run: Run, lease: Lease, context: WorkerContext) -> None:
    """With `autoCommit`, make the recorded work of a done step a commit of the task's branch (P9).

    It is the commit that the checks judged, without the files that the checks wrote.
    """
    task = run.step.task
    if not task.auto_commit:
        return
    note = paths.workspace(task).commit(task.head_commit, sandbox=context.sandbox, home=paths.home(task))
    if note:
        _add_note(run, lease, note)

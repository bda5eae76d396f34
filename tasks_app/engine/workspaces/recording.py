"""Recording the workspace of a run: its files become a commit of the task, in the portal's repository."""

from __future__ import annotations

import logging
from typing import NamedTuple

from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import SandboxError, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.seen_tokens import revoke_tokens_in
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workspaces.merging import as_merge_commit
from tasks_app.git import AUTHOR, Snapshot, added_lines, committed_blob
from tasks_app.history.events.blocks import append_one
from tasks_app.models import Change, ChangeKind, EventKind, Run, Sequence, Step, Task, paths
from tasks_app.services.accounts import TOKEN_PREFIX
from tasks_app.services.difference import base_of

logger = logging.getLogger(__name__)

#: The errors of a recording that fails.
RECORDING_ERRORS = (WorkspaceError, SandboxError)
SHOWN_NAMES = 10
_IGNORED = "Not part of the result, because .gitignore names it or tools fill it:"


class Recorded(NamedTuple):
    """Why the work of a run could not be recorded, or "", and what git ignored of it, as a note."""

    problem: str = ""
    ignored: str = ""


def record_work(run: Run, lease: Lease, context: WorkerContext) -> Recorded:
    """Snapshot the workspace as the agent left it, for the diff and for people who fetch the branch.

    A run whose work is not recorded must not count as done.
    """
    step = run.step
    label = f"{step.task_id}-{step.position:02d}-{run.number}"
    try:
        made = snapshot(
            step.task,
            context,
            lease,
            label=label,
            message=_commit_message(step),
            publish=True,
            manifest=_has_guarded_step(step.task),
        )
        made = as_merge_commit(run, made, label=label, context=context)
        _revoke_tokens_in(made.commit, run, lease)
    except RECORDING_ERRORS as error:
        if temporary_fault(error):
            raise
        logger.warning("task %s: %s", step.task_id, error)
        with lease.locked():  # an answer may have been noted in the run since it halted
            append_one(run, EventKind.ERROR, {"text": f"The work could not be recorded: {error}"})
        return Recorded(str(error))
    _store_snapshot(run, lease, made)
    crash_point("work-recorded")
    return Recorded(ignored=_ignored_note(made))


def _revoke_tokens_in(commit: str, run: Run, lease: Lease) -> None:
    """Revoke API tokens that the run has written into files: whoever gets the result could use them.

    `commit` has the files and is not stored yet, so a worker that dies here does it again. Raises
    WorkspaceError.
    """
    task = run.step.task
    repository = paths.repository(task.project)
    added = added_lines(repository, base=last_recorded(task), head=commit, matching=TOKEN_PREFIX)
    revoke_tokens_in(added, run, lease)


def say_what_checks_saw(run: Run, lease: Lease, ignored: str) -> None:
    """Note once that checks saw files which people who fetch the branch do not get."""
    with lease.fenced() as current:
        others = [note for note in current.left_out if not note.startswith(_IGNORED)]
        if len(others) == len(current.left_out):
            append_one(run, EventKind.NOTE, {"text": ignored})
        run.step.task.left_out = [*others, ignored]
        Task.objects.filter(pk=current.pk).update(left_out=run.step.task.left_out)


def record_after_checks(run: Run, lease: Lease, context: WorkerContext) -> str:
    """Snapshot the workspace after the checks, so that the file guard ignores what checks wrote.

    Does nothing if no step of the task has a file guard. Returns why it failed, or "".
    """
    if not _has_guarded_step(run.step.task):
        return ""
    label = f"{run.step.task_id}-{run.step.position:02d}-{run.number}-checked"
    try:
        made = snapshot(run.step.task, context, lease, label=label, message="After the checks", manifest=True)
    except RECORDING_ERRORS as error:
        if temporary_fault(error):
            raise
        logger.warning("task %s: %s", run.step.task_id, error)
        return str(error)
    with lease.locked():
        run.checked_commit, run.checked_ignored = made.commit, made.manifest
        run.save(update_fields=["checked_commit", "checked_ignored"])
    return ""


def snapshot(
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
        recorded=last_recorded(task),
        below=lambda: commit_below(task),
        message=message or task.title,
        publish=publish,
        manifest=manifest,
        before_it_counts=lease.phase,
    )


def _store_snapshot(run: Run, lease: Lease, made: Snapshot) -> None:
    step = run.step
    with lease.fenced() as current:
        lasting = (RECORDED_AGAIN, _IGNORED) if made.ignored else RECORDED_AGAIN
        left_out = [*(note for note in current.left_out if note.startswith(lasting)), *made.notes]
        run.head_commit, run.head_ignored = made.commit, made.manifest
        run.save(update_fields=["head_commit", "head_ignored"])
        Step.objects.filter(pk=step.pk).update(head_commit=made.commit)
        set_head(current, made.commit)
        for note in left_out:
            if note not in current.left_out:  # say it once, not after each run
                append_one(run, EventKind.NOTE, {"text": note})
        if left_out != current.left_out:
            Task.objects.filter(pk=current.pk).update(left_out=left_out)
        Change.objects.create(task=current, kind=ChangeKind.TASK)  # there is a diff to see now
    step.head_commit = made.commit
    step.task.head_commit, step.task.left_out = made.commit, left_out


def _ignored_note(made: Snapshot) -> str:
    """Name the files that git ignores: checks see them, but people who fetch the branch do not get them."""
    if not made.ignored:
        return ""
    names = ", ".join(made.ignored_names[:SHOWN_NAMES])
    more = f" and {made.ignored - SHOWN_NAMES} more" if made.ignored > SHOWN_NAMES else ""
    return f"{_IGNORED} {names}{more}. Checks saw it."


def _commit_message(step: Step) -> str:
    """Return the message of a recorded commit, which becomes one of the task's branch with `autoCommit`."""
    if step.task.auto_commit:
        return f"chore({step.name}): checkpoint"
    return step.task.title


def is_guarded(step: Step) -> bool:
    """Return whether the step may write only some files (see `engine/runs/guard.py`)."""
    return step_from_json(step.config).allow_write is not None


def _has_guarded_step(task: Task) -> bool:
    return any(is_guarded(step) for step in task.steps.all())


def last_recorded(task: Task) -> str:
    """Return the newest commit of the task's work; where it began if nothing was recorded."""
    return task.head_commit or task.base_commit


def commit_below(task: Task) -> str:
    """Return the commit below the last recorded one if the step that made that goes on; else "".

    A recording replaces the earlier one of its step, because the clone's HEAD stays below both until the work
    is committed. A new clone, of another host or with a new `.git`, must have its HEAD there too: otherwise
    the step would get a second commit.
    """
    made_by = Run.objects.filter(step__task=task, head_commit=task.head_commit).exclude(head_commit="")
    run = made_by.select_related("step__task").order_by("-pk").first()
    if run is None or (task.auto_commit and run.step.phase == Phase.DONE):
        return ""
    parents = paths.repository(task.project).parents_of_own(
        task.head_commit, author=AUTHOR, message=_commit_message(run.step)
    )
    return parents[0] if parents and len(parents) == 1 else ""  # a merge commit stays


def set_head(task: Task, commit: str) -> None:
    """Store the newest commit of the task, and of its sequence if it has one."""
    Task.objects.filter(pk=task.pk).update(head_commit=commit)
    if task.sequence_id:
        Sequence.objects.filter(pk=task.sequence_id).update(head_commit=commit)


def add_note(run: Run | None, lease: Lease, note: str) -> None:
    """Add a sentence of the portal to the log of a run that has ended, if there is one."""
    if run is not None:
        with lease.locked():
            append_one(run, EventKind.NOTE, {"text": note})


def publish_without(name: str, run: Run, lease: Lease) -> None:
    """Publish the judged commit, with the file `name` as it was when the task began.

    It is made from the commit and not from the workspace, where checks have left files since. The snapshot
    after the checks gets the same file, so that a later task of the sequence is not blamed for it; and so
    does the commit from which the step began, because it may go on after a review.
    """
    step, repository = run.step, paths.repository(run.step.task.project)
    began = step.base_commit
    blobs = [
        committed_blob(repository, commit=one, path=name, links=True) for one in (began, base_of(step.task))
    ]
    if blobs[0] != blobs[1]:
        began = _without(name, run, began, label="result-began")
    result = _without(name, run, step.task.head_commit, label="result", publish=True)
    checked = _without(name, run, run.checked_commit, label="result-checked") if run.checked_commit else ""
    with lease.fenced() as task:
        set_head(task, result)
        run.head_commit, run.checked_commit = result, checked
        run.save(update_fields=["head_commit", "checked_commit"])
        if began != step.base_commit:
            step.base_commit, step.head_commit = began, result
            step.save(update_fields=["base_commit", "head_commit"])
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    step.task.head_commit = result


def _without(name: str, run: Run, commit: str, *, label: str, publish: bool = False) -> str:
    task, workspace = run.step.task, paths.workspace(run.step.task)
    made = workspace.repository.with_entry_of(
        commit, name, base_of(task), author=AUTHOR, message=_commit_message(run.step)
    )
    workspace.set_snapshot(made, label=f"{task.pk}-{label}", publish=publish)
    return made


def commit_checkpoint(run: Run, lease: Lease, context: WorkerContext) -> None:
    """With `autoCommit`, make the recorded work of a done step a commit of the task's branch (P9).

    It is the commit that the checks judged, without the files that the checks wrote.
    """
    task = run.step.task
    if not task.auto_commit:
        return
    note = paths.workspace(task).commit(task.head_commit, sandbox=context.sandbox, home=paths.home(task))
    if note:
        add_note(run, lease, note)


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


# Recording a workspace again after the portal's repository lost its recorded commits.


#: The beginning of the sentence on the task's page. Later recordings keep that sentence.
RECORDED_AGAIN = "Recorded again"


def restore_lost_work(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Record the workspace again if the task's newest commit is no longer in the portal's repository.

    A damaged or deleted repository was fetched again, but the source does not have the commits of tasks. As
    long as the workspace exists the result is not lost, only the commits in between. The step is compared
    with what is recorded now or, if it is the task's first, with the task's start. Raises WorkspaceError.
    """
    task = step.task
    workspace = paths.workspace(task)
    repository = workspace.repository
    if not task.head_commit or not workspace.path.is_dir() or repository.has(task.head_commit):
        return
    label = f"{task.pk}-{step.position:02d}-restored-{task.lease_epoch}"
    commit = workspace.snapshot(
        label=label, sandbox=context.sandbox, recorded=task.base_commit, message=task.title, publish=True
    ).commit
    note = (
        f"{RECORDED_AGAIN}, because the portal's repository had lost commit {task.head_commit[:10]}: the"
        " files are as they were, but the changes of earlier steps can no longer be shown one by one."
    )
    logger.warning("task %s: %s", task.pk, note)
    began = step.base_commit
    if began and not repository.has(began):
        is_first = not task.steps.filter(position__lt=step.position).exists()
        began = task.base_commit if is_first else commit
    with lease.fenced() as current:
        left_out = [note, *current.left_out]
        Task.objects.filter(pk=task.pk).update(head_commit=commit, left_out=left_out)
        if task.sequence_id:
            Sequence.objects.filter(pk=task.sequence_id).update(head_commit=commit)
        Step.objects.filter(pk=step.pk).update(base_commit=began)
        Change.objects.create(task=current, kind=ChangeKind.TASK)
    task.head_commit, task.left_out, step.base_commit = commit, left_out, began

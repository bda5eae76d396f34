"""The workspace around a run: made before, recorded afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from django.db.models import Q, QuerySet

from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import SandboxError, WorkspaceError
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.faults import passing
from tasks_app.engine.lease import Lease
from tasks_app.engine.restoring import RECORDED_AGAIN, restore_lost_work
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import AUTHOR, EMPTY_LIST, Snapshot
from tasks_app.history.events.append import append_one
from tasks_app.models import Change, ChangeKind, EventKind, Outcome, Run, Sequence, Step, Task, paths
from tasks_app.services.difference import base_of

logger = logging.getLogger(__name__)

#: What a recording that fails raises.
UNRECORDED = (WorkspaceError, SandboxError)
SHOWN_NAMES = 10


def prepare(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Make sure of the folders, the clone, and where the step started from."""
    task = step.task
    for folder in (paths.home(task), paths.check_home(task), paths.answers_dir(task)):
        folder.mkdir(parents=True, exist_ok=True)
    if task.reset_to:
        _put_files_back(step, lease, context)
    restore_lost_work(step, lease, context)
    fresh = _make_whole(task, lease, context)
    if not step.base_commit:
        ignored = EMPTY_LIST if fresh else _ignored_before(step, lease, context)
        with lease.fenced() as current:
            step.base_commit = _as_left(current) or current.head_commit or current.base_commit
            step.base_ignored = ignored
            step.save(update_fields=["base_commit", "base_ignored"])


def _make_whole(task: Task, lease: Lease, context: WorkerContext) -> bool:
    """Make the clone, or mend its `.git` if an agent or a power cut left it unusable; whether it is new.

    Files are never touched: what is not recorded yet is in them.
    """
    workspace = paths.workspace(task)
    last = runs_in_workspace(task).last()
    if last is None or not _holds_files(workspace.path):
        _require_recorded(task)
        workspace.create(base=_recorded(task))
        return True
    workspace.unlock()
    if last.outcome == Outcome.CRASHED:  # perhaps with the whole machine
        fault = workspace.fault(sandbox=context.sandbox, home=paths.home(task))
    else:
        fault = "" if workspace.looks_whole() else "could not be read"
    if fault:
        _tell(last, lease, [workspace.mend(_recorded(task), why=fault)])
    return False


def _require_recorded(task: Task) -> None:
    """Raise WorkspaceError with the way out if neither the workspace nor what was recorded of it is left."""
    if not task.head_commit or paths.repository(task.project).has(task.head_commit):
        return
    raise WorkspaceError(
        f"The work of this task is lost: its workspace is gone, and so is its last recorded commit"
        f" {task.head_commit[:10]} in the portal's repository. Retry from the first step and put the files"
        " back as they were before it."
    )


def _holds_files(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and any(folder.iterdir())


def _recorded(task: Task) -> str:
    """The last recorded commit of the workspace."""
    return task.head_commit or task.base_commit


def runs_in_workspace(task: Task) -> QuerySet[Run]:
    """The runs of all tasks that share the workspace, oldest first."""
    mine = Q(step__task__sequence=task.sequence_id) if task.sequence_id else Q(step__task=task.pk)
    return Run.objects.filter(mine).select_related("step__task").order_by("pk")


def _ignored_before(step: Step, lease: Lease, context: WorkerContext) -> str:
    """The list of ignored files that are there before a guarded step: none of them is its doing.

    Empty if it cannot be made; then the step's guard does not look at ignored files, and says so.
    """
    if not is_guarded(step):
        return ""
    try:
        label = f"{step.task_id}-{step.position:02d}-before"
        before = _snapshot(step.task, context, lease, label=label, manifest=True)
    except UNRECORDED as error:
        if passing(error):
            raise
        logger.warning("task %s: the files before step %s: %s", step.task_id, step.name, error)
        _tell_last(step.task, lease, f"The files before step {step.name} could not be recorded: {error}")
        return ""
    return before.manifest


def is_guarded(step: Step) -> bool:
    return step_from_json(step.config).allow_write is not None


def _has_guards(task: Task) -> bool:
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
    """Raises LeaseLost, before anything is published, if somebody else holds the task by now."""
    return paths.workspace(task).snapshot(
        label=label,
        sandbox=context.sandbox,
        recorded=_recorded(task),
        message=message or task.title,
        publish=publish,
        manifest=manifest,
        before_it_counts=lease.phase,
    )


def _tell(run: Run, lease: Lease, notes: Iterable[str]) -> None:
    """Sentences of the portal's own into the log of a run that has ended."""
    with lease.fenced():
        for note in notes:
            append_one(run, EventKind.NOTE, {"text": note})


def _tell_last(task: Task, lease: Lease, note: str) -> None:
    """The same where no run is at hand: into the log of the last one in the workspace, if there was one."""
    last = runs_in_workspace(task).last()
    if last is not None:
        _tell(last, lease, [note])


def _as_left(task: Task) -> str:
    """The workspace as the last run in it, and its checks, left it: not this step's doing."""
    tasks = (
        Task.objects.filter(sequence=task.sequence) if task.sequence_id else Task.objects.filter(pk=task.pk)
    )
    last = Run.objects.filter(step__task__in=tasks).exclude(head_commit="").order_by("-pk").first()
    if last is None or last.head_commit != task.head_commit:  # the files were put back since
        return ""
    return last.checked_commit or last.head_commit


def _put_files_back(step: Step, lease: Lease, context: WorkerContext) -> None:
    """Make the workspace anew at the commit that a person chose. What was in it stays under a ref of its own.

    A new clone and not git in the old one, in which an agent may have left programs. Every part can be done
    twice: a worker may die between any two.
    """
    task, commit = step.task, step.task.reset_to
    workspace = paths.workspace(task)
    workspace.repository.commit(commit)  # is it there at all?
    label = f"{task.pk}-{step.position:02d}-{step.first_run}-replaced"
    if workspace.path.is_dir() and not workspace.has_snapshot(label):
        try:
            _snapshot(task, context, lease, label=label)
        except UNRECORDED as error:
            if passing(error):
                raise
            _keep_aside(step, lease, label, error)
    with lease.fenced():
        _set_head(task, commit)
    lease.phase()  # a worker that comes back after long must not remove its successor's workspace
    paths.remove_folder(workspace.path)
    workspace.create(base=commit)
    workspace.publish(commit)
    with lease.fenced():
        Step.objects.filter(pk=step.pk).update(base_commit=commit, base_ignored=EMPTY_LIST)
        Task.objects.filter(pk=task.pk).update(reset_to="")
    step.base_commit, step.base_ignored = commit, EMPTY_LIST
    task.head_commit, task.reset_to = commit, ""


def _keep_aside(step: Step, lease: Lease, label: str, error: Exception) -> None:
    """Files that cannot be recorded are not removed, and do not stop a person from beginning anew."""
    old = paths.workspace(step.task).path
    aside = old.with_name(f"{old.name}.{label}")
    old.rename(aside)
    text = f"The files before they were put back could not be recorded; they are in {aside}. {error}"
    _tell_last(step.task, lease, text)


def _set_head(task: Task, commit: str) -> None:
    Task.objects.filter(pk=task.pk).update(head_commit=commit)
    if task.sequence_id:
        Sequence.objects.filter(pk=task.sequence_id).update(head_commit=commit)


def record_checks(run: Run, lease: Lease, context: WorkerContext) -> str:
    """Where some step has a file guard, keep what the checks left too, so that nobody is blamed for it.

    Returns why that failed, if it did.
    """
    if not _has_guards(run.step.task):
        return ""
    label = f"{run.step.task_id}-{run.step.position:02d}-{run.number}-checked"
    try:
        made = _snapshot(
            run.step.task, context, lease, label=label, message="After the checks", manifest=True
        )
    except UNRECORDED as error:
        if passing(error):
            raise
        logger.warning("task %s: %s", run.step.task_id, error)
        return str(error)
    with lease.fenced():
        run.checked_commit, run.checked_ignored = made.commit, made.manifest
        run.save(update_fields=["checked_commit", "checked_ignored"])
    return ""


def record_work(run: Run, lease: Lease, context: WorkerContext) -> str:
    """Keep the workspace as the agent left it, for the diff and for whoever fetches the branch.

    Returns why that failed, if it did: a run whose work is not recorded must not count as done.
    """
    step = run.step
    label = f"{step.task_id}-{step.position:02d}-{run.number}"
    try:
        made = _snapshot(
            step.task,
            context,
            lease,
            label=label,
            message=_message(step),
            publish=True,
            manifest=_has_guards(step.task),
        )
    except UNRECORDED as error:
        if passing(error):
            raise
        logger.warning("task %s: %s", step.task_id, error)
        with lease.fenced():  # an answer may have been noted in the run since it halted
            append_one(run, EventKind.ERROR, {"text": f"The work could not be recorded: {error}"})
        return str(error)
    _note_snapshot(run, lease, made)
    reached("work-recorded")
    return ""


def _message(step: Step) -> str:
    """The title of a recorded commit: with `autoCommit` it becomes one of the task's branch."""
    if step.task.auto_commit:
        return f"chore({step.name}): checkpoint"
    return f"{step.task.title}\n\nStep {step.name}."


def _note_snapshot(run: Run, lease: Lease, made: Snapshot) -> None:
    step = run.step
    with lease.fenced() as current:
        again = [note for note in current.left_out if note.startswith(RECORDED_AGAIN)]
        left_out = [*again, *made.notes, *_ignored_note(made)]
        run.head_commit, run.head_ignored = made.commit, made.manifest
        run.save(update_fields=["head_commit", "head_ignored"])
        Step.objects.filter(pk=step.pk).update(head_commit=made.commit)
        _set_head(current, made.commit)
        for note in left_out:
            if note not in current.left_out:  # said once, not after each run
                append_one(run, EventKind.NOTE, {"text": note})
        Task.objects.filter(pk=current.pk).update(left_out=left_out)
        Change.objects.create(task=current, kind=ChangeKind.TASK)  # there is a diff to see now
    step.head_commit = made.commit
    step.task.head_commit, step.task.left_out = made.commit, left_out


def _ignored_note(made: Snapshot) -> list[str]:
    """Checks see files that git ignores; who fetches the branch does not get them."""
    if not made.ignored:
        return []
    names = ", ".join(made.ignored_names[:SHOWN_NAMES])
    more = f" and {made.ignored - SHOWN_NAMES} more" if made.ignored > SHOWN_NAMES else ""
    return [f"Not part of the result, because .gitignore names it: {names}{more}. Checks saw it."]


def tidy(task_id: int) -> None:
    """What many recordings left in the portal's repository slows down the next one. Nobody waits for this."""
    task = Task.objects.select_related("project").filter(pk=task_id).first()
    try:
        if task is not None:
            paths.repository(task.project).tidy()
    except (WorkspaceError, OSError) as error:
        logger.warning("task %s: its repository could not be tidied: %s", task_id, error)


def publish_without(name: str, run: Run, lease: Lease) -> None:
    """Publish what was judged, with the file `name` as it was where the task began.

    Made from the judged commit and not from the workspace, where checks have left files since. What they
    left is kept in the same form, so that a later task of the sequence is not blamed for it.
    """
    step = run.step
    result = _without(name, run, step.task.head_commit, label="result", publish=True)
    checked = _without(name, run, run.checked_commit, label="result-checked") if run.checked_commit else ""
    with lease.fenced() as task:
        _set_head(task, result)
        run.head_commit, run.checked_commit = result, checked
        run.save(update_fields=["head_commit", "checked_commit"])
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    step.task.head_commit = result


def _without(name: str, run: Run, commit: str, *, label: str, publish: bool = False) -> str:
    task, workspace = run.step.task, paths.workspace(run.step.task)
    made = workspace.repository.with_entry_of(
        commit, name, base_of(task), author=AUTHOR, message=_message(run.step)
    )
    workspace.keep(made, label=f"{task.pk}-{label}", publish=publish)
    return made


def settle_in_sequence(task: Task, context: WorkerContext) -> None:
    """Let the next task of the sequence build on a commit with this task's title.

    Each recording is one commit on top of the clone's HEAD. If HEAD stayed where the sequence began, the
    work of all tasks would be one commit with the title of the last one.
    """
    task.refresh_from_db(fields=["head_commit"])
    if not task.head_commit:
        return
    try:
        note = paths.workspace(task).commit(task.head_commit, sandbox=context.sandbox, home=paths.home(task))
    except WorkspaceError as error:  # its work is recorded all the same
        note = str(error)
    if note:
        logger.warning("task %s: %s", task.pk, note)


def checkpoint(run: Run, lease: Lease, context: WorkerContext) -> None:
    """With `autoCommit`, the recorded work of a done step becomes a commit of the task's branch (P9).

    The commit is the one that the checks judged: what they left behind themselves is not in it.
    """
    task = run.step.task
    if not task.auto_commit:
        return
    note = paths.workspace(task).commit(task.head_commit, sandbox=context.sandbox, home=paths.home(task))
    if note:
        _tell(run, lease, [note])

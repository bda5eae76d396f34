"""The workspace around a run: made before, recorded afterwards. Slow, so the lease is kept meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path

from tasks_app import places
from tasks_app.agents.leftovers import end_leftovers
from tasks_app.config.pipeline import step_from_json
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.lease import Lease, kept
from tasks_app.engine.shop import Shop
from tasks_app.errors import WorkspaceError
from tasks_app.events.append import append_one
from tasks_app.models import Change, ChangeKind, EventKind, Run, Sequence, Step, Task

logger = logging.getLogger(__name__)


def prepare(step: Step, lease: Lease, shop: Shop) -> None:
    """Make sure of the folders, the clone, and where the step started from."""
    task = step.task
    for folder in (places.home(task), places.check_home(task), places.answers_dir(task)):
        folder.mkdir(parents=True, exist_ok=True)
    with kept(lease):
        if task.reset_to:
            _put_files_back(step, lease, shop)
        places.workspace(task).create(base=task.head_commit or task.base_commit)
    if not step.base_commit:
        with lease.fenced() as current:
            step.base_commit = _as_left(current) or current.head_commit or current.base_commit
            step.save(update_fields=["base_commit"])


def _as_left(task: Task) -> str:
    """The workspace as the last run in it, and its checks, left it: not this step's doing."""
    tasks = (
        Task.objects.filter(sequence=task.sequence) if task.sequence_id else Task.objects.filter(pk=task.pk)
    )
    last = Run.objects.filter(step__task__in=tasks).exclude(head_commit="").order_by("-pk").first()
    if last is None or last.head_commit != task.head_commit:  # the files were put back since
        return ""
    return last.checked_commit or last.head_commit


def _put_files_back(step: Step, lease: Lease, shop: Shop) -> None:
    """Make the workspace anew at the commit that a person chose. What was in it stays under a ref of its own.

    A new clone and not git in the old one, in which an agent may have left programs. Every part can be done
    twice: a worker may die between any two.
    """
    task, commit = step.task, step.task.reset_to
    workspace = places.workspace(task)
    workspace.repository.commit(commit)  # is it there at all?
    _end_leftovers(workspace.path)
    label = f"{task.pk}-{step.position:02d}-{step.first_run}-replaced"
    if workspace.path.exists() and not workspace.has_snapshot(label):
        workspace.snapshot(label=label, jail=shop.jail, home=places.home(task), message=task.title)
    with lease.fenced():
        _set_head(task, commit)
    places.remove_folder(workspace.path)
    workspace.create(base=commit)
    workspace.publish(commit)
    with lease.fenced():
        Step.objects.filter(pk=step.pk).update(base_commit=commit)
        Task.objects.filter(pk=task.pk).update(reset_to="")
    step.base_commit, task.head_commit, task.reset_to = commit, commit, ""


def _end_leftovers(workspace: Path) -> None:
    try:
        end_leftovers(workspace)
    except TimeoutError as error:
        raise WorkspaceError(f"The files cannot be put back: {error}") from error


def _set_head(task: Task, commit: str) -> None:
    Task.objects.filter(pk=task.pk).update(head_commit=commit)
    if task.sequence_id:
        Sequence.objects.filter(pk=task.sequence_id).update(head_commit=commit)


def record_checks(run: Run, lease: Lease, shop: Shop) -> None:
    """Where some step has a file guard, keep what the checks left too, so that nobody is blamed for it."""
    if not any(
        step_from_json(config).allow_write for config in run.step.task.steps.values_list("config", flat=True)
    ):
        return
    label = f"{run.step.task_id}-{run.step.position:02d}-{run.number}-checked"
    workspace, home = places.workspace(run.step.task), places.home(run.step.task)
    try:
        with kept(lease):
            commit = workspace.snapshot(label=label, jail=shop.jail, home=home, message="After the checks")
    except WorkspaceError as error:
        logger.warning("task %s: %s", run.step.task_id, error)
        return
    with lease.fenced():
        run.checked_commit = commit
        run.save(update_fields=["checked_commit"])


def record_work(run: Run, lease: Lease, shop: Shop) -> None:
    """Keep the workspace as the agent left it, for the diff and for whoever fetches the branch."""
    label = f"{run.step.task_id}-{run.step.position:02d}-{run.number}"
    message = f"{run.step.task.title}\n\nStep {run.step.name}."
    try:
        with kept(lease):
            commit = _published(run.step, shop, label=label, message=message)
    except WorkspaceError as error:
        logger.warning("task %s: %s", run.step.task_id, error)
        with lease.fenced():  # an answer may have been noted in the run since it halted
            append_one(run, EventKind.ERROR, {"text": f"The work could not be recorded: {error}"})
        return
    _note_commit(run, lease, commit)
    reached("work-recorded")


def _note_commit(run: Run, lease: Lease, commit: str) -> None:
    step = run.step
    with lease.fenced() as current:
        run.head_commit = commit
        run.save(update_fields=["head_commit"])
        Step.objects.filter(pk=step.pk).update(head_commit=commit)
        _set_head(current, commit)
        Change.objects.create(task=current, kind=ChangeKind.TASK)  # there is a diff to see now
    step.head_commit = commit
    step.task.head_commit = commit


def tidy(task_id: int) -> None:
    """What many recordings left in the portal's repository slows down the next one. Nobody waits for this."""
    task = Task.objects.select_related("project").filter(pk=task_id).first()
    try:
        if task is not None:
            places.repository(task.project).tidy()
    except (WorkspaceError, OSError) as error:
        logger.warning("task %s: its repository could not be tidied: %s", task_id, error)


def checkpoint(step: Step, lease: Lease, shop: Shop) -> None:
    """With `autoCommit`, the work of a done step becomes a commit of the task's branch (P9)."""
    task = step.task
    if not task.auto_commit:
        return
    message = f"chore({step.name}): checkpoint"
    with kept(lease):
        commit = _published(step, shop, label=f"{task.pk}-{step.position:02d}", message=message)
        places.workspace(task).commit(commit, jail=shop.jail, home=places.home(task))


def _published(step: Step, shop: Shop, *, label: str, message: str) -> str:
    return places.workspace(step.task).snapshot(
        label=label, jail=shop.jail, home=places.home(step.task), message=message, publish=True
    )

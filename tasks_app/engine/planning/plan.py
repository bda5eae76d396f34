"""The plan of a task: what one of its steps wrote to PLAN.md, stored with the step.

The workspace may hold a file of that name from an earlier task of the sequence, or because somebody merged
it. So the file is removed before the step that writes the plan: what is there when the step ends was written
by that step. It is then stored in the database, for the following steps and for the task's page, and when the
task ends the file is taken out of the result.
"""

from __future__ import annotations

from tasks_app.config.pipeline import step_from_json
from tasks_app.config.planning import writes_plan
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text
from tasks_app.core.types import PLAN_FILE
from tasks_app.engine.lease import Lease
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import committed_blob, committed_bytes, replace_file, working_text
from tasks_app.models import Change, ChangeKind, Run, Step, paths
from tasks_app.services.difference import base_of

#: Characters of a plan that are stored. A plan is for reading; the rest of a longer one stays in the file.
PLAN_LIMIT = 200_000
#: Maximum bytes of a file of that name that somebody else committed.
FILE_LIMIT = 64 * 1024 * 1024


def is_plan_step(step: Step) -> bool:
    """Return whether this step writes the task's plan: no earlier step has written one."""
    return writes_plan(step_from_json(step.config)) and plan_before(step) is None


def begin_plan(step: Step, lease: Lease) -> None:
    """Remove an old plan before the first run of the step that writes the task's plan.

    The plan of an earlier step of this task stays: a second step may need it, or revise it.
    """
    for earlier in step.task.steps.filter(position__lt=step.position, phase=Phase.DONE, plan=None):
        if writes_plan(step_from_json(earlier.config)):  # it ended before plans were stored
            _store_plan(earlier, _plan_in_workspace(earlier), lease)
    if step.current_runs.exists() or not is_plan_step(step):
        return
    replace_file(paths.workspace(step.task).path, PLAN_FILE, None)
    _store_plan(step, "", lease)


def store_plan(run: Run, lease: Lease) -> None:
    """Store the plan as the run left it, if its step writes the plan or has changed an earlier one."""
    step = run.step
    own, earlier = is_plan_step(step), plan_before(step)
    if not own and earlier is None:
        return
    found = _plan_in_workspace(step)
    if own or (found and earlier is not None and found != earlier.plan):
        _store_plan(step, found, lease)


def _plan_in_workspace(step: Step) -> str:
    text = working_text(paths.workspace(step.task).path, PLAN_FILE, limit=4 * PLAN_LIMIT) or ""
    return storable_text(text[:PLAN_LIMIT]) if text.strip() else ""


def _store_plan(step: Step, plan: str, lease: Lease) -> None:
    if step.plan == plan:
        return
    with lease.fenced() as task:
        Step.objects.filter(pk=step.pk).update(plan=plan)
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    step.plan = plan


def plan_before(step: Step) -> Step | None:
    """Return the last step before this one that has a plan: its plan applies to this step."""
    return step.task.steps.with_plan().filter(position__lt=step.position).last()


def leave_out_plan(step: Step, context: WorkerContext) -> bool:
    """After the last step, restore PLAN.md as it was when the task began. Return whether to publish anew.

    Does nothing if the task's plan is to be part of its result. Can be repeated: a worker may die before the
    result is recorded.
    """
    task, repository = step.task, paths.repository(step.task.project)
    configs = task.steps.values_list("config", flat=True)
    has_plan_step = any(writes_plan(step_from_json(config)) for config in configs)
    if not step.is_last or not has_plan_step:
        return False
    if task.publish_plan and task.steps.with_plan().exists():
        return False
    base = base_of(task)
    began = committed_blob(repository, commit=base, path=PLAN_FILE)
    before = committed_bytes(repository, commit=base, path=PLAN_FILE, limit=FILE_LIMIT) if began else None
    workspace = paths.workspace(task)
    if replace_file(workspace.path, PLAN_FILE, before) and before is None:
        # An agent may have added it to the index, for example to see it in a diff.
        workspace.unstage(PLAN_FILE, sandbox=context.sandbox, home=paths.home(task))
    head = task.head_commit or base
    return head != base and committed_blob(repository, commit=head, path=PLAN_FILE) != began

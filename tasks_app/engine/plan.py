"""The plan of a task: what one of its steps wrote to PLAN.md, kept with the step.

A file of that name may lie in the workspace from an earlier task of the sequence, or because somebody merged
it. So it is taken away before a step that is to write the plan: what stands there when the step ends was
written by that step. It is read then and kept in the database, for the steps that follow and for the task's
page, and the file is taken out of the result when the task ends.
"""

from __future__ import annotations

from tasks_app.agent.gate.patterns import allowed
from tasks_app.config.pipeline import FileExistsCheck, StepConfig, step_from_json
from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable_text
from tasks_app.engine.lease import Lease
from tasks_app.git import committed_blob, committed_bytes, replace_file, working_text
from tasks_app.models import Change, ChangeKind, Run, Step, Task, paths
from tasks_app.services.difference import base_of

PLAN_FILE = "PLAN.md"
PLAN_STEP = "plan"
PLAN_COMMAND = "plan-task"
#: Characters of a plan that are kept. A plan is for reading; what is longer stays in the file.
PLAN_LIMIT = 200_000
#: Bytes of a file of that name that somebody else committed.
FILE_LIMIT = 64 * 1024 * 1024


def writes_plan(config: StepConfig) -> bool:
    """Whether the step is to write the plan: by its name, prompt or check, if it may write the file."""
    wanted = config.name == PLAN_STEP or config.command == PLAN_COMMAND or _is_checked(config)
    return wanted and (config.allow_write is None or allowed(PLAN_FILE, list(config.allow_write)))


def _is_checked(config: StepConfig) -> bool:
    return any(isinstance(check, FileExistsCheck) and check.path == PLAN_FILE for check in config.checks)


def is_to_plan(step: Step) -> bool:
    """Whether it is this step that is to write the task's plan: the first that is to write one, and did."""
    return writes_plan(step_from_json(step.config)) and plan_before(step) is None


def begin_plan(step: Step, lease: Lease) -> None:
    """Take away the plan that is there before the step that writes one makes its first run.

    The plan of an earlier step of this very task stays: a second step may want it to be there, or revise it.
    """
    _adopt(step, lease)
    if step.current_runs.exists() or not is_to_plan(step):
        return
    replace_file(paths.workspace(step.task).path, PLAN_FILE, None)
    _keep(step, "", lease)


def _adopt(step: Step, lease: Lease) -> None:
    """Take the file for the plan of a step that ended before plans were kept."""
    for earlier in step.task.steps.filter(position__lt=step.position, phase=Phase.DONE, plan=None):
        if writes_plan(step_from_json(earlier.config)):
            _keep(earlier, _written(earlier), lease)


def note_plan(run: Run, lease: Lease) -> None:
    """Keep the plan as the run left it: of the step that writes it, and of a later one that changed it."""
    step = run.step
    own, earlier = is_to_plan(step), plan_before(step)
    if not own and earlier is None:
        return
    found = _written(step)
    if own or (found and earlier is not None and found != earlier.plan):
        _keep(step, found, lease)


def _written(step: Step) -> str:
    """What stands in the workspace as the plan now; empty if nothing does."""
    text = working_text(paths.workspace(step.task).path, PLAN_FILE, limit=4 * PLAN_LIMIT) or ""
    return storable_text(text[:PLAN_LIMIT]) if text.strip() else ""


def _keep(step: Step, plan: str, lease: Lease) -> None:
    if step.plan == plan:
        return
    with lease.fenced() as task:
        Step.objects.filter(pk=step.pk).update(plan=plan)
        Change.objects.create(task=task, kind=ChangeKind.TASK)
    step.plan = plan


def plan_before(step: Step) -> Step | None:
    """The step whose plan holds for this one: the last of those before it that has one."""
    return step.task.steps.with_plan().filter(position__lt=step.position).last()


def leave_out_plan(step: Step) -> bool:
    """After the task's last step, put PLAN.md back to what it was where the task began, unless the plan is to
    be a part of the result. Whether the result is to be recorded anew.

    Can be done twice: a worker may die before the result is recorded.
    """
    task, repository = step.task, paths.repository(step.task.project)
    if task.steps.filter(position__gt=step.position).exists() or not _has_plan_step(task):
        return False
    if task.publish_plan and task.steps.with_plan().exists():
        return False
    base = base_of(task)
    before = committed_bytes(repository, commit=base, path=PLAN_FILE, limit=FILE_LIMIT)
    replace_file(paths.workspace(task).path, PLAN_FILE, before)
    ends = (base, task.head_commit or base)
    began, ended = (committed_blob(repository, commit=commit, path=PLAN_FILE) for commit in ends)
    return began != ended


def _has_plan_step(task: Task) -> bool:
    return any(writes_plan(step_from_json(one)) for one in task.steps.values_list("config", flat=True))

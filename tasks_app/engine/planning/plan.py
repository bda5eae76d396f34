"""The plan of a task: what one of its steps wrote to PLAN.md, stored with the step.

The workspace may hold a file of that name from an earlier task of the sequence, or because somebody merged
it. So the file is removed before the step that writes the plan: what is there when the step ends was written
by that step. It is then stored in the database, for the following steps and for the task's page, and when the
task ends the file is taken out of the result. If a human has approved the plan, what is stored is what they
have read, whatever agents write to the file: `engine/runs/guard.py` judges whether the step left the same.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from tasks_app.agent.port import Ending, RunResult
from tasks_app.config.pipeline import step_from_json
from tasks_app.config.planning import (
    CLARIFY,
    CLARIFY_DOLLARS,
    CLARIFY_DOLLARS_TO_END,
    CLARIFY_TURNS,
    writes_plan,
)
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text, visible
from tasks_app.core.types import PLAN_FILE
from tasks_app.engine.lease import Lease
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import committed_blob, committed_bytes, replace_file, working_text
from tasks_app.history.events.blocks import append_one
from tasks_app.history.transitions import move
from tasks_app.models import Change, ChangeKind, EventKind, Run, Step, Task, paths
from tasks_app.models.question import QuestionQuerySet
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.prompting.instructions import load_step_instructions
from tasks_app.services.difference import base_of
from tasks_app.services.usage import statistics
from tasks_app.services.usage.cost_limits import spent_by

#: The name of the check whether the step has left the plan as a human approved it.
AS_APPROVED = f"{PLAN_FILE} is the approved plan"
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
    if not is_plan_step(step) or step.current_runs.exists():
        return
    replace_file(paths.workspace(step.task).path, PLAN_FILE, None)
    _store_plan(step, "", lease)


def store_plan(run: Run, lease: Lease) -> None:
    """Store the plan as the run left it, if its step writes the plan or has changed an earlier one.

    A plan that a human has approved stays, also if a later step has changed the file.
    """
    step = run.step
    earlier = plan_before(step)
    if earlier is None:
        if writes_plan(step_from_json(step.config)):
            _store_plan(step, approved_plan(step) or _plan_in_workspace(step), lease)
    elif approved_plan(earlier):
        if differs_from_approved(earlier):
            append_one(run, EventKind.NOTE, {"text": _KEPT})
    elif (found := _plan_in_workspace(step)) and found != earlier.plan:
        _store_plan(step, found, lease)


_KEPT = (
    f"{PLAN_FILE} in the workspace differs from the plan that a human has approved. The following steps get "
    "the approved plan."
)


def approved_plan(step: Step) -> str:
    """Return the plan of the task, if this step writes it and a human has approved it; else ""."""
    if not is_plan_step(step):
        return ""
    approved = step.questions.approved_plans().last()
    return storable_text(approved.plan[:PLAN_LIMIT]) if approved else ""


def differs_from_approved(step: Step) -> bool:
    """Return whether the workspace has another plan than the approved one. White space does not count."""
    approved, found = approved_plan(step), _plan_in_workspace(step)
    if approved and (paths.workspace(step.task).path / PLAN_FILE).is_symlink():
        return True  # to whatever an agent would read there
    return bool(approved and found) and visible(found).split() != approved.split()


def difference_from_approved(step: Step) -> str:
    """Return as a diff in which lines the plan in the workspace differs from the approved one."""
    lines = approved_plan(step).splitlines(), visible(_plan_in_workspace(step)).splitlines()
    names = "the approved plan", PLAN_FILE
    return "\n".join(difflib.unified_diff(*lines, *names, lineterm=""))


def restore_approved_plan(step: Step) -> None:
    """Write the approved plan into the workspace again if its step has left another one."""
    if differs_from_approved(step):
        replace_file(paths.workspace(step.task).path, PLAN_FILE, approved_plan(step).encode())


def found_to_differ(run: Run) -> bool:
    """Return whether the check of the run found another plan in the workspace than the approved one."""
    return any(report["check"] == AS_APPROVED and not report["passed"] for report in run.checks or ())


def approvals_that_count(step: Step) -> QuestionQuerySet:
    """Return the approvals because of which the step plans no more.

    After a run that left another plan than the approved one it plans again, so that it may ask about that.
    """
    approved = step.questions.approved_plans()
    judged = step.current_runs.filter(checks__isnull=False).last()
    if judged is not None and found_to_differ(judged):
        return approved.filter(run__number__gt=judged.number)
    return approved


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
    planned = [one for one in step.task.steps.all() if one.plan and one.position < step.position]
    return planned[-1] if planned else None


def leave_out_plan(step: Step, context: WorkerContext) -> bool:
    """After the last step, restore PLAN.md as it was when the task began. Return whether to publish anew.

    Does nothing if the task's plan is to be part of its result. Can be repeated: a worker may die before the
    result is recorded.
    """
    task, repository = step.task, paths.repository(step.task.project)
    if not step.is_last:
        return False
    if not any(writes_plan(step_from_json(one.config)) for one in task.steps.all()):
        return False
    if task.publish_plan and task.steps.with_plan().exists():
        return False
    base = base_of(task)
    began = committed_blob(repository, commit=base, path=PLAN_FILE, links=True)
    before = committed_bytes(repository, commit=base, path=PLAN_FILE, limit=FILE_LIMIT) if began else None
    workspace = paths.workspace(task)
    if replace_file(workspace.path, PLAN_FILE, before) and before is None:
        # An agent may have added it to the index, for example to see it in a diff.
        workspace.unstage(PLAN_FILE, sandbox=context.sandbox, home=paths.home(task))
    head = task.head_commit or base
    return head != base and committed_blob(repository, commit=head, path=PLAN_FILE, links=True) != began


# The clarifying pass before the steps of the pipeline (SPEC D8): its limits.
#
# The pass never fails a task by its own limits: it then ends with what it has asked.


def skips_clarifying(step: Step) -> bool:
    """Return whether the pass is left out: somebody has set the threshold to 0, so nobody can be asked."""
    if not step.is_clarifying or step.runs.exists():
        return False
    return Task.objects.filter(pk=step.task_id, threshold=0).exists()


def skip_clarifying(step: Step, lease: Lease) -> bool:
    """End the pass without a run. Return True: the step is done."""
    with lease.locked():
        move(step, Phase.DONE, reason="the threshold is 0, so nobody is asked", epoch=lease.epoch)
    return True


def turns_of(step: Step) -> int | None:
    """Return the turns that a run of the step may take."""
    limit = step.task.max_turns
    if step.is_clarifying:
        return min(limit or CLARIFY_TURNS, CLARIFY_TURNS)
    return limit


def dollars_of(step: Step) -> float | None:
    """Return the dollars that the next run of the step may cost; None for no limit."""
    task = step.task
    left = None if task.max_cost_usd is None else task.max_cost_usd - spent_by(task.pk)
    if not step.is_clarifying:
        return left
    of_pass = max(CLARIFY_DOLLARS - statistics.usage_of(step.current_runs).cost_usd, CLARIFY_DOLLARS_TO_END)
    return of_pass if left is None else min(left, of_pass)


def without_failure_of_pass(step: Step, result: RunResult) -> RunResult:
    """Return the result; a pass that has taken all its turns or dollars has finished."""
    if not step.is_clarifying or result.ending is not Ending.FAILED:
        return result
    if result.out_of_turns:
        return replace(result, ending=Ending.FINISHED, error=f"It ended after {turns_of(step)} turns.")
    if result.reached_cost_limit:
        return replace(result, ending=Ending.FINISHED, error="Stopped at its cost limit.")
    return result


def clarifying_instructions() -> str:
    """Return the prompt of the pass. Raises BadInput if the file is missing or empty."""
    return load_step_instructions(CLARIFY, repository_text=None, shipped_dir=SHIPPED_PROMPTS)

"""The clarifying pass before the steps of the pipeline (SPEC D8): its limits.

The pass never fails a task by its own limits: it then ends with what it has asked.
"""

from __future__ import annotations

from dataclasses import replace

from tasks_app.agent.port import Ending, RunResult
from tasks_app.config.planning import CLARIFY, CLARIFY_DOLLARS, CLARIFY_DOLLARS_TO_END, CLARIFY_TURNS
from tasks_app.core.phases import Phase
from tasks_app.engine.lease import Lease
from tasks_app.history.transitions import move
from tasks_app.models import Step, Task
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.prompting.instructions import load_step_instructions
from tasks_app.services.usage import statistics
from tasks_app.services.usage.cost_limits import spent_by


def is_skipped(step: Step) -> bool:
    """Return whether the pass is left out: somebody has set the threshold to 0, so nobody can be asked."""
    if not step.is_clarifying or step.runs.exists():
        return False
    return Task.objects.filter(pk=step.task_id, threshold=0).exists()


def skip(step: Step, lease: Lease) -> bool:
    """End the pass without a run. Return True: the step is done."""
    with lease.locked():
        move(step, Phase.DONE, reason="the threshold is 0, so nobody is asked", epoch=lease.epoch)
    return True


def turns_of(step: Step) -> int | None:
    """Return the turns that a run of the step may take."""
    limit = step.task.max_turns
    return min(limit or CLARIFY_TURNS, CLARIFY_TURNS) if step.is_clarifying else limit


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


def instructions() -> str:
    """Return the prompt of the pass. Raises BadInput if the file is missing or empty."""
    return load_step_instructions(CLARIFY, repository_text=None, shipped_dir=SHIPPED_PROMPTS)

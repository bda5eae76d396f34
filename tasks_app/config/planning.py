"""The steps that write a plan, and the clarifying pass before all steps (SPEC D8).

The pass is a step that the portal adds when a task is created. Its agent only reads, and asks everything that
is unclear about the goal on one card.
"""

from __future__ import annotations

from itertools import chain, count

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.config.pipeline import FileAccess, FileExistsCheck, Pipeline, StepConfig
from tasks_app.config.threshold import HIGHEST
from tasks_app.core.types import PLAN_FILE

PLAN_STEP = "plan"
PLAN_COMMAND = "plan-task"
#: The name of the clarifying pass, unless a step of the pipeline has it.
CLARIFY = "clarify"
#: From this threshold on, tasks of a pipeline that plans begin with the pass, unless it has the key.
CLARIFIED_FROM = 3
#: The pass is short: it ends with what it has found when it has taken this many turns, seconds or dollars.
CLARIFY_TURNS = 30
CLARIFY_SECONDS = 900
CLARIFY_DOLLARS = 1.0
#: A run that gets the answers may cost this much, even if those before it have cost all that.
CLARIFY_DOLLARS_TO_END = 0.1
#: The shell runs only `cat-herder`, and what Claude Code knows to do nothing but read.
CLARIFY_TOOLS = ("Read", "Glob", "Grep")


def writes_plan(step: StepConfig) -> bool:
    """Return whether name, prompt or a check of the step demand a plan, and it may write the file."""
    has_check = any(isinstance(check, FileExistsCheck) and check.path == PLAN_FILE for check in step.checks)
    wanted = step.name == PLAN_STEP or step.command == PLAN_COMMAND or has_check
    return wanted and (step.allow_write is None or allowed(PLAN_FILE, list(step.allow_write)))


def clarifies(pipeline: Pipeline, *, threshold: int) -> bool:
    """Return whether a task begins with the clarifying pass: nobody is asked anything at a threshold of 0."""
    if threshold == 0:
        return False
    if pipeline.clarify is not None:
        return pipeline.clarify
    return threshold >= CLARIFIED_FROM and any(map(writes_plan, pipeline.steps))


def clarified_from(pipeline: Pipeline) -> int | None:
    """Return the lowest threshold at which tasks of the pipeline begin with the pass; None: at none."""
    return next((level for level in range(HIGHEST + 1) if clarifies(pipeline, threshold=level)), None)


def clarifying_step(pipeline: Pipeline) -> StepConfig:
    """Return the pass: it has the model, the network and the worker's labels of the pipeline's first step."""
    first, taken = pipeline.steps[0], [step.name for step in pipeline.steps]
    names = chain([CLARIFY], (f"{CLARIFY}-{number}" for number in count(2)))
    return StepConfig(
        name=next(name for name in names if name not in taken),
        command=CLARIFY,
        file_access=FileAccess(allow_write=()),
        allowed_tools=CLARIFY_TOOLS,
        model=first.model,
        network=first.network,
        runs_on=first.runs_on,
        timeout=min(first.timeout or CLARIFY_SECONDS, CLARIFY_SECONDS),
    )

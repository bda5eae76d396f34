"""What a later task of a sequence may do that its first task may not (R4).

Agents write task files, and each names a pipeline: otherwise an agent without a network would give itself
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks_app.agent.gate.path_patterns import allowed
from tasks_app.agent.tools import USUAL
from tasks_app.config.pipeline import StepConfig, step_from_json
from tasks_app.core.amounts import dollars
from tasks_app.core.types import NETWORKS
from tasks_app.models import StepKind, Task
from tasks_app.services.tasks import TaskPlan


def more_open(plan: TaskPlan, first: Task) -> list[str]:
    """Return what the planned task may do beyond the first one, each as a phrase for people.

    The first task may do what one of its steps may. Approvals are those that all of its steps ask for.
    """
    before = [step_from_json(step.config) for step in first.steps.filter(kind=StepKind.WORK)]
    after = [
        step.within(plan.config.limits, network=plan.config.network_of(step)) for step in plan.pipeline.steps
    ]
    return [*_of_task(plan, first), *_of_steps(after, before, plan=plan, first=first)]


def _of_task(plan: TaskPlan, first: Task) -> Iterator[str]:
    if plan.threshold < first.threshold:
        yield f"interaction threshold {plan.threshold} instead of {first.threshold}"
    limits, costs = plan.config.limits, (first.max_cost_usd, first.soft_cost_usd)
    for name, after, before in zip(
        ("maxCostUsd", "softCostUsd"), (limits.max_cost_usd, limits.asks_at_cost_usd), costs, strict=True
    ):
        if before is not None and (after is None or after > before):
            more = "without a limit" if after is None else dollars(after)
            yield f"{name} {more} instead of {dollars(before)}"
    if first.max_turns is not None and (limits.max_turns is None or limits.max_turns > first.max_turns):
        yield f"maxTurns {limits.max_turns or 'without a limit'} instead of {first.max_turns}"


def _of_steps(
    after: Sequence[StepConfig], before: Sequence[StepConfig], *, plan: TaskPlan, first: Task
) -> Iterator[str]:
    reach = max((NETWORKS.index(step.network or "full") for step in before), default=0)
    models = {step.model or first.model for step in before}
    globs = _writable(before)
    tools = {rule for step in before for rule in _rules(step)}
    asked = [{*first.ask_before, *step.ask_before} for step in before]
    approvals = set.intersection(*asked) if asked else set()
    for step in after:
        where = f"in step “{step.name}”"
        network = step.network or "full"
        if NETWORKS.index(network) > reach:
            yield f"network {network} instead of {NETWORKS[reach]} {where}"
        model = step.model or plan.definition.model or plan.config.model or ""
        if model not in models:
            yield f"model {model or 'of the installation'} {where}"
        if globs is not None:
            # A pattern is new unless it certainly matches nothing beyond the known ones.
            more = ["any file"]
            if step.allow_write is not None:
                more = [one for one in step.allow_write if one not in globs and not _is_covered(one, globs)]
            if more:
                yield f"may write {', '.join(more)} {where}"
        if more := [
            rule for rule in _rules(step) if rule not in tools and rule.partition("(")[0] not in tools
        ]:
            yield f"may use {', '.join(more)} {where}"
        if missing := approvals - {*plan.config.ask_before, *step.ask_before}:
            yield f"does not ask before {', '.join(sorted(missing))} {where}"
    if any(step.plan_approval for step in before) and not any(step.plan_approval for step in after):
        yield "no plan that needs approval"


def _writable(steps: Sequence[StepConfig]) -> list[str] | None:
    """Return the patterns of files that one of the steps may write; None: any file."""
    if any(step.allow_write is None for step in steps):
        return None
    return [glob for step in steps for glob in step.allow_write or ()]


def _is_covered(glob: str, known: list[str]) -> bool:
    return not any(char in glob for char in "*?[") and not glob.endswith("/") and allowed(glob, known)


def _rules(step: StepConfig) -> tuple[str, ...]:
    if step.allowed_tools is None:
        return USUAL
    return step.allowed_tools

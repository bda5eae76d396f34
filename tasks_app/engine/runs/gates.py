"""What a step must pass before its agent runs: end, money and network (M8).

Each gate stores what it stops the step with, and returns whether it did. The first that stops it is the last
one that is asked.
"""

from __future__ import annotations

from collections.abc import Callable

from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.runs.conclude import fail, pause
from tasks_app.engine.runs.guard import guard_report
from tasks_app.engine.runs.judging import check_work
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workspaces.recording import commit_for_sequence
from tasks_app.history.audit import record
from tasks_app.history.deeds import FINISHED_EARLY
from tasks_app.history.events.blocks import append_one, question_payload
from tasks_app.history.transitions import move, move_between_tasks, move_both
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    EarlyEnd,
    EventKind,
    Question,
    QuestionKind,
    Run,
    Step,
    Task,
)
from tasks_app.services.reviews import hand_over_waiting
from tasks_app.services.usage.cost_limits import (
    WAY,
    budgets_of_task,
    is_reached,
    must_end_early,
    next_month,
    question_at_limit,
    soft_limit_leaves_least,
    spent_by,
)
from tasks_app.services.wait_sentences import SHORTEST_WAIT
from tasks_app.services.workers.hosts import network_of

Gate = Callable[[Step, Lease, WorkerContext], bool]


def fail_at_cost_limit(step: Step, lease: Lease, context: WorkerContext) -> bool:
    """Fail the step if its task has reached its cost limit. Return whether it failed."""
    if step.task.max_cost_usd is None or spent_by(step.task_id) < step.task.max_cost_usd:
        return False
    allowed = f"${step.task.max_cost_usd:g}"
    fail(lease, step, f"The task has cost the {allowed} that its project allows (limits.maxCostUsd).")
    return True


def wait_for_budget(step: Step, lease: Lease, context: WorkerContext) -> bool:
    """Let the task wait if a budget for this month is spent. Return whether it waits."""
    problem = budgets_of_task(step.task).problem()
    if not problem:
        return False
    now = timezone.now()
    pause(
        lease, step, Phase.WAITING_FOR_RESET, problem,
        resets_at=max(next_month(now), now + SHORTEST_WAIT), waits_for_budget=True,
    )  # fmt: skip
    return True


def ask_if_soft_limit_reached(
    step: Step, lease: Lease, context: WorkerContext, *, ran_out: bool = False
) -> bool:
    """Ask whether the task may go on if it has reached its soft limit. Return whether it waits.

    `ran_out` says that its last run was ended for want of dollars: what is left then pays for no request, and
    is not tried again. Phases, question and log are one transaction: a worker that dies has asked, or its
    successor does.
    """
    if not (is_reached(step.task) or (ran_out and soft_limit_leaves_least(step.task))):
        return False
    with lease.fenced() as task:
        reason = "the soft cost limit is reached"
        move_both(step, task, Phase.WAITING_FOR_INPUT, reason=reason, epoch=lease.epoch)
        _store_question(task, step)
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    crash_point("asked-about-cost")
    return True


def _store_question(task: Task, step: Step) -> None:
    number = task.questions.count() + 1
    question = Question.objects.create(
        task=task,
        step=step,
        run=Run.objects.filter(step__task=task).latest("pk"),
        number=number,
        kind=QuestionKind.COST,
        way=WAY,
        tool_use_id=f"{WAY}-{number}",
        deferred=False,
        asked_at=timezone.now(),
        **question_at_limit(task, step),
    )
    append_one(question.run, EventKind.QUESTION, question_payload(question))
    record(
        Action.ASKED, task=task, subject=question.headline, question=question.pk, actor_name="the portal"
    )  # fmt: skip


def end_early_if_due(step: Step, lease: Lease, context: WorkerContext) -> bool:
    """End the task if it is to be finished early and the step has no further run. Return whether it ended.

    What the step has done is checked first. Work that its file guard refuses fails the task, as always.
    """
    why = must_end_early(step.task, step)
    if not why:
        return False
    last = step.current_runs.last()
    if last is not None and (problem := _refused_work(last, lease, context)):
        fail(lease, step, problem)
        return True
    if step.task.sequence:
        commit_for_sequence(step.task, context)
    with lease.fenced() as task:
        if hand_over_waiting(task, epoch=lease.epoch):  # a reviewer wants more done
            move(task, Phase.PENDING, reason="changes were requested", epoch=lease.epoch)
        else:
            _end(task, step, why, lease)
    crash_point("ended-early")
    return True


def _refused_work(last: Run, lease: Lease, context: WorkerContext) -> str:
    """Check what the step has done if that is still to do. Return why it must not be a result, or ""."""
    if last.checks is None:
        check_work(last, lease, context)
    report = guard_report(last)
    if report is None or report.passed:
        return ""
    return report.problem


def _end(task: Task, step: Step, why: str, lease: Lease) -> None:
    if step.phase == Phase.RUNNING:
        move(step, Phase.CANCELLED, reason=f"{FINISHED_EARLY}: {why}", epoch=lease.epoch)
    task.questions.forget_ends()
    move(
        task, Phase.DONE, reason=FINISHED_EARLY, epoch=lease.epoch,
        early_end=EarlyEnd.ENDED, publish_due=False,
    )  # fmt: skip
    if task.sequence:
        task.sequence.refresh_from_db()
        advice = "Resume it, or resume the sequence to go on with the next."
        failure = f"The task “{task}” was {FINISHED_EARLY}. {advice}"
        move_between_tasks(task.sequence, Phase.FAILED, failure=failure)


def fail_if_network_stays(step: Step, lease: Lease, context: WorkerContext) -> bool:
    """Fail a step that must not have the network if it cannot be run without. Return whether it failed."""
    network = network_of(step)
    if network == "full" or context.sandbox.keeps_network_out:
        return False
    why = context.sandbox.reason or context.sandbox.network_reason
    needs = f"This step must run without the network (network: {network}), which is impossible here: {why}"
    fail(lease, step, needs)
    return True


#: In this order.
GATES: tuple[Gate, ...] = (
    end_early_if_due,
    fail_at_cost_limit,
    wait_for_budget,
    ask_if_soft_limit_reached,
    fail_if_network_stays,
)

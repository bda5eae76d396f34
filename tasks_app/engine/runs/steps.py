"""Working on one step: run the agent, store how the run ended, judge it, and try again or go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.conf import settings
from django.db.models import Count, Q, prefetch_related_objects
from django.utils import timezone

from tasks_app.agent.leftover_processes import Claim, kill_earlier_processes
from tasks_app.agent.port import Ending, RunOrder, RunPaths, RunResult
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import Phase
from tasks_app.core.trace_context import log_context
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.planning.plan import (
    begin_plan,
    dollars_of,
    skip_clarifying,
    skips_clarifying,
    turns_of,
    without_failure_of_pass,
)
from tasks_app.engine.prompts.run_feedback import has_undelivered_input, has_unread_question
from tasks_app.engine.runs.conclude import (
    complete_halt,
    fail,
    halt,
    may_try_again,
    note_progress,
    pause,
    postpone,
    store_result,
)
from tasks_app.engine.runs.decisions import note_followed, said_collector
from tasks_app.engine.runs.gates import GATES, ask_if_soft_limit_reached, fail_at_cost_limit
from tasks_app.engine.runs.judging import fail_if_not_done, judge
from tasks_app.engine.runs.next_run import NextRun, halting_tools, next_run, timeout_of
from tasks_app.engine.runs.recovery import deaths_without_progress, fail_if_hopeless
from tasks_app.engine.runs.run_recorder import RunRecorder, last_run_of, reply_collector
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.engine.traces.spans import context_of_run
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.machine import toolchains_of
from tasks_app.engine.workspaces.recording import record_work
from tasks_app.engine.workspaces.setup import setup_folders, tool_variables
from tasks_app.engine.workspaces.workspace import prepare_workspace
from tasks_app.history.events.blocks import NewEvent
from tasks_app.history.transitions import last_cancellation, move
from tasks_app.models import EventKind, Outcome, QuestionKind, Run, Step, paths
from tasks_app.services.decisions.applying import apply_decisions
from tasks_app.services.decisions.content import known_decision
from tasks_app.services.usage.cost_limits import dollars_for_run, must_end_early, with_limits
from tasks_app.services.wait_sentences import SHORTEST_WAIT, reset_words
from tasks_app.services.workers.hosts import network_of, runs_in_workspace

#: Advice to people after such an end.
WAYS_OUT = {
    Ending.REFUSED: "The model refused to go on. Duplicate the task and change its text or its model, or "
    "resume it to try once more in a new session.",
    Ending.TOO_LONG: "The session is too long for the model. Resume the task to go on in a new session. "
    "It is told what was done so far.",
}
#: Maximum number of consecutive runs that may end with set-aside calls.
SET_ASIDE = 5


def work_on(step: Step, lease: Lease, context: WorkerContext) -> bool:
    """Advance the step as far as possible now. Return whether it is done."""
    with lease.fenced() as task:
        step.task = task  # an earlier step may have changed it since this step was loaded
        if step.phase == Phase.PENDING:
            if task.phase != Phase.RUNNING:  # cancelled meanwhile, which leaves pending steps as they are
                raise IllegalMove(f"Task “{task}”", task.phase, Phase.RUNNING)
            move(step, Phase.RUNNING, epoch=lease.epoch)
    if skips_clarifying(step):
        return skip_clarifying(step, lease)
    # Processes of earlier holders must not change the workspace while it is recorded and checked.
    kill_earlier_processes(paths.workspace(step.task).path, lease.as_claim)
    last = runs_in_workspace(step.task).last()
    prepare_workspace(step, last, lease, context)
    begin_plan(step, lease)
    if last and last.step.task_id != step.task_id:
        last = last_run_of(step.task)
    if last:  # its worker may have died before it had read what the run left
        reply_collector(last, lease).collect()
        said_collector(last, lease).collect()
    while True:
        runs = list(step.current_runs.defer("prompt"))
        if runs and fail_if_not_done(runs, lease, context):
            return False
        # A review or a new answer goes to the agent before its work is judged.
        if runs and runs[-1].outcome == Outcome.FINISHED and not has_undelivered_input(step):
            if has_unread_question(step, runs[-1]):
                record_work(runs[-1], lease, context)
            elif (verdict := judge(runs[-1], lease, context)) is not None:
                return verdict
        if not _run_agent(step, runs, lease, context):
            return False


def _run_agent(step: Step, runs: Sequence[Run], lease: Lease, context: WorkerContext) -> bool:
    """Run the agent once, after `runs`. Return whether the step goes on at once afterwards."""
    step.task = with_limits(step.task_id)  # somebody may have changed them during the last run
    prefetch_related_objects([step.task], "steps")
    if any(stops(step, lease, context) for stops in GATES):
        return False
    planned = next_run(step, runs)
    run = _open_run(step, planned, lease, context, number=runs[-1].number + 1 if runs else step.first_run)
    with log_context(context_of_run(run)):
        return _run_opened(run, planned, lease, context)


def _run_opened(run: Run, planned: NextRun, lease: Lease, context: WorkerContext) -> bool:
    """Start the agent, wait for its end and store it. Return whether the step goes on at once afterwards."""
    timeout = timeout_of(run.step)
    recorder = RunRecorder(
        lease, run, stop_signal=context.stop_signal, timeout=timeout, turned_down=planned.turned_down,
        hands_in=bool(planned.answers or planned.reviews), is_new=True,
        halt=lambda recorder, result: halt(lease, run, result, recorder),
    )  # fmt: skip
    if planned.note:
        recorder.write(NewEvent(EventKind.NOTE, {"text": planned.note}))
    crash_point("run-opened")
    order = _order_for(run, planned, timeout)
    if order.threads:
        recorder.collectors.append(reply_collector(run, lease))
    recorder.collectors.append(said_collector(run, lease))
    try:
        result = context.agent.run(order, recorder)
        recorder.collect()
    except Stopped as stopped:
        recorder.collect()
        return _conclude_stopped(run, stopped, lease, recorder, context)
    crash_point("agent-ended")
    return _conclude(run, result, lease, recorder, context)


def _open_run(step: Step, planned: NextRun, lease: Lease, context: WorkerContext, *, number: int) -> Run:
    """Store the run that begins."""
    with lease.locked():
        run = Run.objects.create(
            step=step,
            number=number,
            reason=planned.reason,
            prompt=planned.prompt or "",
            session_id=planned.session_id,
            resumed=planned.resume,
            threshold=step.task.threshold,
            model=step_from_json(step.config).model or step.task.model,
            sandboxed=context.agent.sandboxed,
            rehearsed=settings.ENVIRONMENT.rehearsal,
            network=network_of(step),
            lease_epoch=lease.epoch,
            data_dir=paths.worker_data_dir_id(),
        )
        step.questions.filter(pk__in=planned.answers).update(handed_in=run)
        step.reviews.filter(pk__in=planned.reviews).update(handed_in=run)
        return run


def _order_for(run: Run, planned: NextRun, timeout: float) -> RunOrder:
    task = run.step.task
    folder = paths.run_dir(run)
    folder.mkdir(parents=True, exist_ok=True)
    config, tools = step_from_json(run.step.config), toolchains_of(task)
    budgets = [f"project {task.project_id}"]
    if task.created_by_id:
        budgets.append(f"person {task.created_by_id}")
    return RunOrder(
        session_id=planned.session_id,
        paths=RunPaths(
            workspace=paths.workspace(task).path,
            home=paths.home(task),
            answers=paths.answers_dir(task),
            run=folder,
            lock=paths.lock_file(task),
            readable=(*setup_folders(task), *tools.readable),
        ),
        prompt=planned.prompt,
        resume=planned.resume,
        permissions=planned.permissions,
        answered=planned.answered,
        may_ask=task.threshold > 0,
        halting=halting_tools(run),
        ask_before=(*task.ask_before, *config.ask_before),
        planning=planned.planning,
        model=run.model,
        step=run.step.name,
        allow_write=config.allow_write,
        allowed_tools=config.allowed_tools,
        cost_before=planned.cost_before,
        max_turns=turns_of(run.step),
        max_cost_usd=dollars_of(run.step),
        dollars_left=dollars_for_run(task),
        budgets=tuple(budgets),
        timeout=timeout,
        network=network_of(run.step),
        threads=task.threads.numbers(),
        decisions=tuple(map(known_decision, planned.decisions)),
        claim=Claim(task.pk, run.lease_epoch),
        variables=tool_variables(task),
        traceparent=context_of_run(run).traceparent,
    )


def _conclude(
    run: Run, result: RunResult, lease: Lease, recorder: RunRecorder, context: WorkerContext
) -> bool:
    """Store how the run ended. Return whether the step goes on at once."""
    result = without_failure_of_pass(run.step, result)
    if result.ending is Ending.ASKED or (result.ending is Ending.UNDELIVERED and result.asks):
        _store_halt(run, result, lease, recorder)
        crash_point("halted")
        record_work(run, lease, context)
        _apply_decisions(result, lease)
        return not result.asks and not _fail_if_always_set_aside(run.step, lease)
    with lease.locked():
        store_result(run, result, recorder)
        if result.ending is Ending.FINISHED and (unknown := note_followed(run, result.text)):
            recorder.write(NewEvent(EventKind.NOTE, {"text": unknown}))
    crash_point("result-stored")
    if run.not_done:
        return True
    if result.ending is Ending.KILLED:
        return _retry_killed(run, result, lease, context)
    note_progress(run.step.task, lease)
    if result.ending is Ending.LIMIT:
        _wait_for_reset_or_fail(run, result, lease)
        return False
    if result.ending in {Ending.FINISHED, Ending.LOST}:
        return True
    record_work(run, lease, context)
    error = f"{WAYS_OUT.get(result.ending, '')}\n\n{result.error}".strip()
    if result.ending is Ending.REFUSED:  # the same request would be refused again
        fail(lease, run.step, error)
        return False
    run.step.task = with_limits(run.step.task_id)  # somebody may have changed them during the run
    if must_end_early(run.step.task, run.step):
        return True
    if result.ending is Ending.BUDGET and ask_if_soft_limit_reached(run.step, lease, context, ran_out=True):
        return False
    # The next run has the answer in its prompt, or does not begin before somebody allows more dollars.
    if result.ending in {Ending.UNDELIVERED, Ending.BUDGET}:
        return True
    return not fail_at_cost_limit(run.step, lease, context) and may_try_again(run.step, lease, error)


def _store_halt(run: Run, result: RunResult, lease: Lease, recorder: RunRecorder) -> None:
    """Store the questions of the run, or the rest of its end if they were stored while it was ending."""
    is_stored = recorder.has_asked or recorder.has_ended()
    (complete_halt if is_stored else halt)(lease, run, result, recorder)


def _retry_killed(run: Run, result: RunResult, lease: Lease, context: WorkerContext) -> bool:
    """Retry a run whose process somebody else killed, at once or later. Not a failed attempt."""
    record_work(run, lease, context)
    if fail_if_hopeless(run.step, lease):
        return False
    deaths = deaths_without_progress(run.step)
    if deaths > 1:
        postpone(lease, result.error.rstrip("."), faults=deaths - 1)
    return deaths <= 1


def _fail_if_always_set_aside(step: Step, lease: Lease) -> bool:
    """Fail the step if its agent keeps making several calls at once that need approval. Return whether so."""
    asked = Count("questions", filter=~Q(questions__kind=QuestionKind.COST))
    last = list(step.runs.order_by("-number").annotate(asked=asked)[:SET_ASIDE])
    if len(last) < SET_ASIDE or any(run.outcome != Outcome.ASKED or run.asked for run in last):
        return False
    fail(lease, step, "The agent keeps making several calls at once that each need a human's approval.")
    return True


def _wait_for_reset_or_fail(run: Run, result: RunResult, lease: Lease) -> None:
    words = reset_words(result.resets_at, now=timezone.now())
    if run.step.task.wait_for_reset and result.resets_at:
        reason = f"A usage limit was reached. {words}"
        # Wait a while even if the time has passed (another clock, or just now): do not retry in a loop.
        again = max(result.resets_at, timezone.now() + SHORTEST_WAIT)
        pause(lease, run.step, Phase.WAITING_FOR_RESET, reason, resets_at=again, waits_for_budget=False)
    else:
        advice = "Resume the task once the limit allows it."
        error = result.error.strip()
        if error and error[-1] not in ".!?":
            error += "."
        fail(lease, run.step, " ".join(filter(None, [error, words, advice])))


def _conclude_stopped(
    run: Run, stopped: Stopped, lease: Lease, recorder: RunRecorder, context: WorkerContext
) -> bool:
    """Store the end of a run that was stopped from outside. Return whether the step goes on at once."""
    result = stopped.partial or RunResult(Ending.STOPPED)
    if result.asks:
        _store_halt(run, replace(result, ending=Ending.ASKED), lease, recorder)
    else:
        with lease.locked():
            store_result(run, result, recorder)
            why: str = stopped.reason
            if stopped.reason is StopReason.TIMEOUT:
                run.outcome = Outcome.FAILED
                if run.step.is_clarifying:
                    run.outcome = Outcome.FINISHED
                run.error = f"The run took longer than its {timeout_of(run.step):g} seconds."
                run.save(update_fields=["outcome", "error"])
            elif stopped.reason is StopReason.CANCELLED:
                cancelled = last_cancellation(run.step.task)
                why = (cancelled and cancelled.reason) or why
            recorder.write(NewEvent(EventKind.NOTE, {"text": f"The run was stopped: {why}."}))
    if stopped.reason is not StopReason.SHUTDOWN:  # a shutdown is urgent, and the next worker records
        record_work(run, lease, context)
        _apply_decisions(result, lease)
    if result.asks:
        return False
    if stopped.reason is StopReason.TIMEOUT:
        goes_on = bool(run.not_done) or run.step.is_clarifying
        return goes_on or may_try_again(run.step, lease, run.error)
    if stopped.reason is StopReason.INTERRUPTED:
        pause(lease, run.step, Phase.INTERRUPTED, "stopped by hand")
    if stopped.reason is StopReason.SHUTDOWN:
        pause(lease, run.step, Phase.PENDING, "its worker was stopped")
    return False


def _apply_decisions(result: RunResult, lease: Lease) -> None:
    """Have decisions answer what the run has asked. If the worker dies before, the sweeper does so."""
    if result.asks:
        crash_point("asked-of-decisions")
        apply_decisions(lease.task())
        crash_point("decisions-applied")

"""Judging a finished run: the file guard, then the checks of its step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from tasks_app.config.pipeline import FileExistsCheck, ShellCheck, StepConfig, step_from_json
from tasks_app.core.phases import Phase
from tasks_app.core.types import PLAN_FILE
from tasks_app.engine.checks import Check, CheckReport, FileExists, NoCheck, Shell, run_checks
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease
from tasks_app.engine.planning.plan import (
    found_to_differ,
    leave_out_plan,
    restore_approved_plan,
    store_plan,
)
from tasks_app.engine.runs.conclude import fail_both, may_try_again
from tasks_app.engine.runs.guard import guard_report, plan_report, task_files_report, unasked_report
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import Ticker
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.machine import toolchains_of
from tasks_app.engine.workspaces.merging import merge_report
from tasks_app.engine.workspaces.recording import (
    commit_checkpoint,
    publish_without,
    record_after_checks,
    record_work,
    say_what_checks_saw,
)
from tasks_app.engine.workspaces.setup import setup_folders, tool_variables
from tasks_app.history.events.blocks import NewEvent, append_one
from tasks_app.history.transitions import move
from tasks_app.models import EventKind, Outcome, QuestionKind, Run, paths
from tasks_app.prompting.feedback import NOT_DONE
from tasks_app.services.usage.cost_limits import must_end_early
from tasks_app.services.workers.hosts import network_of


def judge(run: Run, lease: Lease, context: WorkerContext) -> bool | None:
    """Judge a finished run. True: the step is done; False: the step failed; None: there is another attempt.

    The work is recorded here and not when the run ended, so that a worker's death between the two loses
    nothing.
    """
    is_new = run.checks is None
    if is_new:
        check_work(run, lease, context)
    if found_to_differ(run):  # not only if the run is new: a worker may have died in between
        restore_approved_plan(run.step)
    if is_new:
        # A step that is to be finished early is not repaired: `engine/runs/gates.py` ends it.
        finishing = run.step.task.is_finishing_early and bool(must_end_early(run.step.task, run.step))
        costs_an_attempt = not (_passed(run) or finishing or _is_first_other_plan(run))
        if costs_an_attempt and not may_try_again(run.step, lease, _check_failure(run)):
            return False
    if not _passed(run):
        return None
    if leave_out_plan(run.step, context):
        publish_without(PLAN_FILE, run, lease)
    commit_checkpoint(run, lease, context)
    with lease.locked():
        move(run.step, Phase.DONE, epoch=lease.epoch)
    crash_point("step-done")
    return True


def _is_first_other_plan(run: Run) -> bool:
    """Return whether all that failed is that the plan is not the approved one, for the first time.

    The agent then gets another run in any case, in which it may ask about the other plan.
    """
    failed = [report for report in run.checks or () if not report["passed"]]
    before = run.step.current_runs.filter(number__lt=run.number)
    return found_to_differ(run) and len(failed) == 1 and not any(map(found_to_differ, before))


def fail_if_not_done(runs: Sequence[Run], lease: Lease, context: WorkerContext) -> bool:
    """Fail the step of these runs if its agent has said that the task is not done. Return whether it failed.

    No check is run: none of them could make the work count. With a question afterwards the agent takes it
    back. A call that waited for an approval is no question: what was said beside it holds when the run that
    got the decision has ended.
    """
    said = next((run for run in reversed(runs) if run.not_done), None)
    if said is None:
        return False
    run = said
    later = None if runs[-1] == said else runs[-1]
    asked = said.questions.of_agents()
    if said.outcome == Outcome.ASKED or asked.exists():
        only_approvals = asked.exists() and not asked.exclude(kind=QuestionKind.APPROVAL).exists()
        if only_approvals and later is None:
            return False
        if not only_approvals or later is None or later.questions.of_agents().exists():
            Run.objects.filter(pk=said.pk).update(not_done="")
            return False
        run = later
    record_work(run, lease, context)
    why = f"{NOT_DONE}{said.not_done}"
    with lease.fenced() as task:
        # From here on it is a failed run like any other, after which the task can be resumed.
        Run.objects.filter(pk=said.pk).update(not_done="")
        Run.objects.filter(pk=run.pk).update(outcome=Outcome.FAILED, error=why)
        append_one(run, EventKind.ERROR, {"text": why})
        fail_both(run.step, task, why, epoch=lease.epoch)
    return True


def check_work(run: Run, lease: Lease, context: WorkerContext) -> None:
    """Record what the run did, and run the file guard and the step's checks on it."""
    recorded = record_work(run, lease, context)
    if recorded.problem:
        recorder = RunRecorder(lease, run, stop_signal=context.stop_signal, timeout=float("inf"))
        _store_reports(run, [_recording_failed("What the step did", recorded.problem)], lease, recorder)
    else:
        store_plan(run, lease)
        _run_guard_and_checks(run, lease, context, ignored=recorded.ignored)


def _run_guard_and_checks(run: Run, lease: Lease, context: WorkerContext, *, ignored: str) -> None:
    task = run.step.task
    recorder = RunRecorder(lease, run, stop_signal=context.stop_signal, timeout=float("inf"))
    ticker = Ticker(recorder.tick)
    reports = (
        plan_report(run),
        guard_report(run),
        unasked_report(run),
        task_files_report(run),
        merge_report(run),
    )
    guard_reports = [report for report in reports if report]
    if not all(report.passed for report in guard_reports):
        _store_reports(run, guard_reports, lease, recorder)
        return
    tools, checks = toolchains_of(task), checks_of(step_from_json(run.step.config))
    check_reports = run_checks(
        checks,
        workspace=paths.workspace(task).path,
        sandbox=context.sandbox if network_of(run.step) == "full" else context.sandbox.without_network(),
        home=paths.check_home(task),
        readable=(*setup_folders(task), *tools.readable),
        # The next holder of the task finds processes of the checks by these variables and ends them.
        env={**tool_variables(task), **lease.as_claim.variables(paths.workspace(task).path)},
        stop=ticker.should_stop,
    )
    ticker.raise_problem()
    recorder.tick()
    has_run_commands = any(isinstance(check, Shell) for check in checks)
    if has_run_commands and (problem := record_after_checks(run, lease, context)):
        check_reports = (*check_reports, _recording_failed("What the checks left", problem))
    if has_run_commands and ignored:
        say_what_checks_saw(run, lease, ignored)
    _store_reports(run, (*guard_reports, *check_reports), lease, recorder)


def _recording_failed(what: str, reason: str) -> CheckReport:
    """Return a failed check, because work that is not in the portal's repository does not count as done."""
    order = f"{reason}\n\nMake it possible to record all files of the workspace with git, then end your turn."
    return CheckReport(False, "recording", problem=f"{what} could not be recorded: {reason}", order=order)


def _store_reports(run: Run, reports: Iterable[CheckReport], lease: Lease, recorder: RunRecorder) -> None:
    with lease.locked():
        run.checks = [asdict(report) for report in reports]
        run.save(update_fields=["checks"])
        for report in reports:
            recorder.write(NewEvent(EventKind.CHECK, asdict(report)))
    crash_point("checked")


def checks_of(config: StepConfig) -> list[Check]:
    """Convert the step's configured checks to those that `run_checks` takes."""
    checks: list[Check] = []
    for check in config.checks:
        if isinstance(check, FileExistsCheck):
            checks.append(FileExists(check.path))
        elif isinstance(check, ShellCheck):
            timeout = {"timeout": float(check.timeout)} if check.timeout else {}
            checks.append(Shell(check.command, check.expect, **timeout))
        else:
            checks.append(NoCheck())
    return checks


def _passed(run: Run) -> bool:
    return all(report["passed"] for report in run.checks or [])


def _check_failure(run: Run) -> str:
    report: dict[str, object] = next((one for one in run.checks or () if not one["passed"]), {})
    output = str(report.get("output", ""))[-4000:]
    return f"{report.get('problem') or 'A check failed.'}\n{output}".strip()

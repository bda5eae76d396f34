"""Whether a finished run did what its step wants: the file guard, then the checks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict

from tasks_app.config.pipeline import FileExistsCheck, ShellCheck, StepConfig, step_from_json
from tasks_app.core.phases import Phase
from tasks_app.engine.checks import Check, CheckReport, FileExists, NoCheck, Shell, run_checks
from tasks_app.engine.conclude import may_try_again
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.guard import guard_report, plan_report
from tasks_app.engine.lease import Lease
from tasks_app.engine.network import network_of
from tasks_app.engine.plan import PLAN_FILE, leave_out_plan, note_plan
from tasks_app.engine.recorder import RunRecorder
from tasks_app.engine.recording import checkpoint, publish_without, record_checks, record_work
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.history.events.append import NewEvent
from tasks_app.history.transitions import move
from tasks_app.models import EventKind, Run, paths


def judge(run: Run, lease: Lease, context: WorkerContext) -> bool | None:
    """The checks of a finished run: True, the step is done; False, it failed; None, another attempt.

    What it did is recorded here and not when it ended, so that a worker's death between the two loses
    nothing.
    """
    if run.checks is None:
        if unrecorded := record_work(run, lease, context):
            recorder = RunRecorder(lease, run, stop_signal=context.stop_signal, timeout=float("inf"))
            _store_reports(run, [_unrecorded("What the step did", unrecorded)], lease, recorder)
        else:
            note_plan(run, lease)
            _check(run, lease, context)
        if not _passed(run) and not may_try_again(run.step, lease, _failed_check(run)):
            return False
    if not _passed(run):
        return None
    if leave_out_plan(run.step):
        publish_without(PLAN_FILE, run, lease)
    checkpoint(run, lease, context)
    with lease.fenced():
        move(run.step, Phase.DONE, epoch=lease.epoch)
    reached("step-done")
    return True


def _check(run: Run, lease: Lease, context: WorkerContext) -> None:
    task = run.step.task
    recorder = RunRecorder(lease, run, stop_signal=context.stop_signal, timeout=float("inf"))
    ticking = _Ticking(recorder)
    guarded = [report for report in (plan_report(run), guard_report(run)) if report]
    if not all(report.passed for report in guarded):
        _store_reports(run, guarded, lease, recorder)
        return
    reports = run_checks(
        checks_of(step_from_json(run.step.config)),
        workspace=paths.workspace(task).path,
        sandbox=context.sandbox if network_of(run.step) == "full" else context.sandbox.without_network(),
        home=paths.check_home(task),
        # So that a successor can end what it leaves behind.
        env=lease.as_claim.cookie(paths.workspace(task).path),
        stop=ticking.stop,
    )
    ticking.raise_problem()
    recorder.tick()
    if unrecorded := record_checks(run, lease, context):
        reports = (*reports, _unrecorded("What the checks left", unrecorded))
    _store_reports(run, (*guarded, *reports), lease, recorder)


def _unrecorded(what: str, reason: str) -> CheckReport:
    """Nothing counts as done that is not in the portal's repository."""
    order = f"{reason}\n\nMake it possible to record all files of the workspace with git, then end your turn."
    return CheckReport(False, "recording", order, problem=f"{what} could not be recorded: {reason}")


def _store_reports(run: Run, reports: Iterable[CheckReport], lease: Lease, recorder: RunRecorder) -> None:
    with lease.fenced():
        run.checks = [asdict(report) for report in reports]
        run.save(update_fields=["checks"])
        for report in reports:
            recorder.write(NewEvent(EventKind.CHECK, asdict(report)))
    reached("checked")


class _Ticking:
    """Ends a check when the work is to stop."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._next = 0.0
        self._problem: Exception | None = None

    def stop(self) -> bool:
        """Asked ten times a second; one look at the rows in a second is enough."""
        if self._problem is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            try:
                self._recorder.tick()
            except Exception as error:
                self._problem = error
        return self._problem is not None

    def raise_problem(self) -> None:
        """A check that was ended has no verdict, whatever ended it."""
        if self._problem is not None:
            raise self._problem


def checks_of(config: StepConfig) -> list[Check]:
    """The step's checks in the words of the room that runs them."""
    found: list[Check] = []
    for check in config.checks:
        if isinstance(check, FileExistsCheck):
            found.append(FileExists(check.path))
        elif isinstance(check, ShellCheck):
            timeout = {"timeout": float(check.timeout)} if check.timeout else {}
            found.append(Shell(check.command, check.expect, **timeout))
        else:
            found.append(NoCheck())
    return found


def _passed(run: Run) -> bool:
    return all(report["passed"] for report in run.checks or [])


def _failed_check(run: Run) -> str:
    report: dict[str, object] = next((one for one in run.checks or () if not one["passed"]), {})
    output = str(report.get("output", ""))[-4000:]
    return f"{report.get('problem') or 'A check failed.'}\n{output}".strip()

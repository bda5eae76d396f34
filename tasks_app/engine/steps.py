"""Working on one step: run the agent, see how it ended, run the checks, try again or go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from tasks_app import places
from tasks_app.agents.port import Agent, Ending, Places, RunOrder, RunResult
from tasks_app.checks import Check, CheckReport, FileExists, NoCheck, Shell, run_checks
from tasks_app.config.pipeline import FileExistsCheck, ShellCheck, StepConfig, step_from_json
from tasks_app.engine.conclude import fail, halt, put_back, store_result
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.guard import guard_report
from tasks_app.engine.lease import Lease
from tasks_app.engine.next_run import NextRun, next_run, timeout_of
from tasks_app.engine.recorder import RunRecorder
from tasks_app.engine.stopping import Stopped, StopReason, StopSignal
from tasks_app.errors import WorkspaceError
from tasks_app.events.append import NewEvent, append_one
from tasks_app.jail import Jail
from tasks_app.models import Change, ChangeKind, EventKind, Outcome, Run, Sequence, Step
from tasks_app.state.phases import Phase
from tasks_app.transitions import move
from tasks_app.workspace import Snapshot

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shop:
    """What the work is done with: the agent, the jail for checks and git, and the wish to stop.

    `rings`: whether a worker is told of the next task of a sequence; not by one who takes it up itself.
    """

    agent: Agent
    jail: Jail
    stop_signal: StopSignal
    rings: bool = True


def work_on(step: Step, lease: Lease, shop: Shop) -> bool:
    """Take the step as far as it goes now; whether it is done."""
    with lease.fenced():
        if step.phase == Phase.PENDING:
            move(step, Phase.RUNNING, epoch=lease.epoch)
    _prepare(step, lease)
    while True:
        last = step.runs.last()
        if last is not None and last.outcome == Outcome.FINISHED:
            verdict = _judge(last, lease, shop)
            if verdict is not None:
                return verdict
        if not _run(step, lease, shop):
            return False


def _prepare(step: Step, lease: Lease) -> None:
    task = step.task
    for folder in (places.home(task), places.answers_dir(task)):
        folder.mkdir(parents=True, exist_ok=True)
    places.workspace(task).create(base=task.head_commit or task.base_commit)
    if not step.base_commit:
        with lease.fenced() as current:
            step.base_commit = current.head_commit or current.base_commit
            step.save(update_fields=["base_commit"])


def _run(step: Step, lease: Lease, shop: Shop) -> bool:
    """One run of the agent; whether the step goes on at once afterwards."""
    planned = next_run(step)
    run = _open(step, planned, lease, shop)
    timeout = timeout_of(step)
    recorder = RunRecorder(lease, run, stop_signal=shop.stop_signal, timeout=timeout)
    reached("run-opened")
    try:
        result = shop.agent.run(_order(run, planned, timeout), recorder)
    except Stopped as stopped:
        return _stopped(run, stopped, lease, recorder)
    reached("agent-ended")
    return _ended(run, result, lease, recorder, shop)


def _open(step: Step, planned: NextRun, lease: Lease, shop: Shop) -> Run:
    with lease.fenced():
        return Run.objects.create(
            step=step,
            number=step.runs.count() + 1,
            reason=planned.reason,
            prompt=planned.prompt or "",
            session_id=planned.session_id,
            resumed=planned.resume,
            model=step_from_json(step.config).model or step.task.model,
            sandboxed=shop.agent.sandboxed,
            lease_epoch=lease.epoch,
        )


def _order(run: Run, planned: NextRun, timeout: float) -> RunOrder:
    task = run.step.task
    folder = places.run_dir(run)
    folder.mkdir(parents=True, exist_ok=True)
    config = step_from_json(run.step.config)
    return RunOrder(
        session_id=planned.session_id,
        places=Places(
            workspace=places.workspace(task).path,
            home=places.home(task),
            answers=places.answers_dir(task),
            run=folder,
            lock=places.lock_file(task),
        ),
        prompt=planned.prompt,
        resume=planned.resume,
        decisions=planned.decisions,
        may_ask=task.threshold > 0,
        model=run.model,
        step=run.step.name,
        allow_write=config.allow_write,
        allowed_tools=config.allowed_tools,
        cost_before=planned.cost_before,
        timeout=timeout,
    )


def _ended(run: Run, result: RunResult, lease: Lease, recorder: RunRecorder, shop: Shop) -> bool:
    if result.ending is Ending.ASKED:
        halt(lease, run, result, recorder)
        reached("halted")
        _record_work(run, lease, shop)
        return False
    with lease.fenced():
        store_result(run, result, recorder)
    reached("result-stored")
    if result.ending is Ending.LIMIT:
        _limit_reached(run, result, lease)
        return False
    if result.ending is Ending.FINISHED:
        return True
    _record_work(run, lease, shop)
    return _may_try_again(run.step, lease, result.error)


def _limit_reached(run: Run, result: RunResult, lease: Lease) -> None:
    task = run.step.task
    until = f" It resets at {result.resets_at:%Y-%m-%d %H:%M} UTC." if result.resets_at else ""
    if task.wait_for_reset and result.resets_at:
        reason = f"usage limit reached.{until}"
        put_back(lease, run.step, Phase.WAITING_FOR_RESET, reason, resets_at=result.resets_at)
    else:
        fail(lease, run.step, f"{result.error}{until} Go on from here once the limit allows it.")


def _stopped(run: Run, stopped: Stopped, lease: Lease, recorder: RunRecorder) -> bool:
    result = stopped.partial or RunResult(Ending.STOPPED)
    if result.asks:
        halt(lease, run, replace(result, ending=Ending.ASKED), recorder)
        return False
    with lease.fenced():
        store_result(run, result, recorder)
        recorder.write(NewEvent(EventKind.NOTE, {"text": f"The run was stopped: {stopped.reason}."}))
    if stopped.reason is StopReason.TIMEOUT:
        return _timed_out(run, lease)
    if stopped.reason is StopReason.INTERRUPTED:
        put_back(lease, run.step, Phase.INTERRUPTED, "stopped by hand")
    if stopped.reason is StopReason.SHUTDOWN:
        put_back(lease, run.step, Phase.PENDING, "its worker was stopped")
    return False


def _timed_out(run: Run, lease: Lease) -> bool:
    run.outcome = Outcome.FAILED
    run.error = f"The run took longer than its {timeout_of(run.step):g} seconds."
    with lease.fenced():
        run.save(update_fields=["outcome", "error"])
    return _may_try_again(run.step, lease, run.error)


def _may_try_again(step: Step, lease: Lease, failure: str) -> bool:
    """Count a failed attempt; whether another one is left. If not, the step has failed (P6)."""
    with lease.fenced():
        step.failures += 1
        step.save(update_fields=["failures"])
    if step.failures <= step_from_json(step.config).retry:
        return True
    fail(lease, step, failure or "The agent ended with an error and gave no reason.")
    return False


def _judge(run: Run, lease: Lease, shop: Shop) -> bool | None:
    """The checks of a finished run: True, the step is done; False, it failed; None, another attempt.

    What it did is recorded here and not when it ended, so that a worker's death between the two loses
    nothing.
    """
    if run.checks is None:
        _record_work(run, lease, shop)
        _check(run, lease, shop)
        if not _passed(run) and not _may_try_again(run.step, lease, _failed_check(run)):
            return False
    if not _passed(run):
        return None
    _checkpoint(run.step, shop)
    with lease.fenced():
        move(run.step, Phase.DONE, epoch=lease.epoch)
    reached("step-done")
    return True


def _checkpoint(step: Step, shop: Shop) -> None:
    """With `autoCommit`, the work of a done step becomes a commit of the task's branch (P9)."""
    task = step.task
    if not task.auto_commit:
        return
    home = places.home(task)
    workspace = places.workspace(task)
    message = f"chore({step.name}): checkpoint"
    snapshot = workspace.snapshot(
        label=f"{task.pk}-{step.position:02d}", jail=shop.jail, home=home, message=message
    )
    workspace.commit(snapshot, jail=shop.jail, home=home)
    workspace.publish(snapshot)


def _check(run: Run, lease: Lease, shop: Shop) -> None:
    task = run.step.task
    recorder = RunRecorder(lease, run, stop_signal=shop.stop_signal, timeout=float("inf"))
    ticking = _Ticking(recorder)
    guarded = guard_report(run.step)
    if guarded and not guarded.passed:
        _store_reports(run, (guarded,), lease, recorder)
        return
    reports = run_checks(
        checks_of(step_from_json(run.step.config)),
        workspace=places.workspace(task).path,
        jail=shop.jail,
        home=places.home(task),
        stop=ticking.stop,
    )
    ticking.raise_problem()
    recorder.tick()
    _store_reports(run, (*([guarded] if guarded else []), *reports), lease, recorder)


def _store_reports(run: Run, reports: Iterable[CheckReport], lease: Lease, recorder: RunRecorder) -> None:
    with lease.fenced():
        run.checks = [asdict(report) for report in reports]
        run.save(update_fields=["checks"])
        for report in reports:
            recorder.write(NewEvent(EventKind.CHECK, asdict(report)))
    reached("checked")


class _Ticking:
    """Keeps the lease while a check runs, and ends the check when the work is to stop."""

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
    report = (run.checks or [{}])[-1]
    output = str(report.get("output", ""))[-4000:]
    return f"The check failed: {report.get('check')}\n{output}".strip()


def _record_work(run: Run, lease: Lease, shop: Shop) -> None:
    """Keep the workspace as the agent left it, for the diff and for whoever fetches the branch."""
    task = run.step.task
    workspace = places.workspace(task)
    label = f"{task.pk}-{run.step.position:02d}-{run.number}"
    try:
        snapshot: Snapshot = workspace.snapshot(
            label=label,
            jail=shop.jail,
            home=places.home(task),
            message=f"{task.title}\n\nStep {run.step.name}.",
        )
        workspace.publish(snapshot)
    except WorkspaceError as error:
        logger.warning("task %s: %s", task.pk, error)
        with lease.fenced():  # an answer may have been noted in the run since it halted
            append_one(run, EventKind.ERROR, {"text": f"The work could not be recorded: {error}"})
        return
    with lease.fenced() as current:
        Step.objects.filter(pk=run.step_id).update(head_commit=snapshot.commit)
        current.head_commit = snapshot.commit
        current.save(update_fields=["head_commit"])
        Change.objects.create(task=current, kind=ChangeKind.TASK)  # there is a diff to see now
        if current.sequence_id:
            Sequence.objects.filter(pk=current.sequence_id).update(head_commit=snapshot.commit)
    run.step.head_commit = snapshot.commit
    task.head_commit = snapshot.commit
    reached("work-recorded")

"""Closing runs that have no end: their worker died, or something was in the way that passes."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app.agent.outcome import open_asks
from tasks_app.agent.port import Ending, RunResult
from tasks_app.agent.stream import Stream
from tasks_app.agent.transcript_store import Transcript
from tasks_app.agent.transcripts import deferred_call
from tasks_app.core.types import Ask
from tasks_app.engine.conclude import ask_humans, store_result
from tasks_app.engine.deaths import fail_if_hopeless
from tasks_app.engine.lease import Lease
from tasks_app.engine.next_run import cost_before, transcript_of, undelivered
from tasks_app.engine.recorder import RunRecorder
from tasks_app.engine.stopping import never
from tasks_app.history.events.append import NewEvent
from tasks_app.models import EventKind, Outcome, Run, Task, paths


@dataclass(frozen=True)
class Salvaged:
    """What a run without an end had said, read again as stored."""

    run: Run
    stream: Stream
    transcript: Transcript


def salvage(lease: Lease) -> list[Salvaged]:
    """The task's runs that have no end: the lease is ours, so whoever ran them is gone.

    Reading a long run again is slow, so it is done before the transaction that notes what it says.
    """
    rows = Run.objects.filter(step__task=lease.task_id, outcome="").select_related("step__task__project")
    return [Salvaged(run, _reread(run), transcript_of(run)) for run in rows]


def note_crash(task: Task, found: Salvaged, lease: Lease) -> None:
    """Close a run whose worker died. Called inside `lease.fenced()`."""
    said = "The worker of this run died; it goes on from here."
    if _close(task, found, lease, Outcome.CRASHED, note=said):
        fail_if_hopeless(found.run.step, lease)


def note_fault(task: Task, found: Salvaged, lease: Lease, fault: str) -> None:
    """Close a run that was cut off by a fault that passes. Called inside `lease.fenced()`."""
    said = f"{fault}. The run was interrupted and is tried again."
    _close(task, found, lease, Outcome.INTERRUPTED, note=said)


def _close(task: Task, found: Salvaged, lease: Lease, outcome: Outcome, *, note: str) -> bool:
    """Whether it had no end of its own, so that `outcome` is how it ended.

    What was used counts, what was asked is asked now, and a run that had said all is taken as finished.
    """
    run, stream = found.run, found.stream
    asks = _open_asks(run, stream, may_ask=_could_ask(run))
    ending = stream.ending(asks)[0] if stream.result or asks else Ending.STOPPED
    if ending is Ending.ASKED and stream.deferred in _decided(run):
        ending = Ending.STOPPED
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=0.0)
    recorder.write(NewEvent(EventKind.NOTE, {"text": note}))
    store_result(run, _result(run, stream, ending), recorder)
    undelivered(run.step, run, found.transcript)  # what the agent has got by now is noted
    if ending is Ending.STOPPED:
        Run.objects.filter(pk=run.pk).update(outcome=outcome)
    if ending is Ending.ASKED:
        waits_at = deferred_call(found.transcript)
        ask_humans(task, run, asks, deferred=waits_at, recorder=recorder, epoch=lease.epoch)
    return ending is Ending.STOPPED


def _result(run: Run, stream: Stream, ending: Ending) -> RunResult:
    """What the proxy had counted is in the run's row already, and is believed rather than the stream."""
    said = stream.usage(cost_before=cost_before(run))
    if not run.metered:
        return RunResult(ending, usage=said, model=stream.model or run.model)
    reported = said.cost_usd if stream.result else None
    return RunResult(ending, usage=run.usage, metered=True, reported_cost_usd=reported, model=run.model)


def _could_ask(run: Run) -> bool:
    """By the threshold as it was for this run."""
    return (run.step.task.threshold if run.threshold is None else run.threshold) > 0


def _open_asks(run: Run, stream: Stream, *, may_ask: bool) -> list[Ask]:
    """What was asked and is not yet known, noted questions included.

    Nothing if the step was retried since: the answer would belong to an attempt that no longer counts.
    """
    if run.number < run.step.first_run:
        return []
    task = run.step.task
    known = set(task.questions.values_list("tool_use_id", flat=True))
    found = open_asks(
        stream, _decided(run), may_ask=may_ask, workspace=paths.workspace(task).path, home=paths.home(task)
    )
    return [ask for ask in found if ask.way != "command" or ask.tool_use_id not in known]


def _reread(run: Run) -> Stream:
    stream = Stream()
    for raw in run.events.exclude(raw=None).order_by("seq").values_list("raw", flat=True).iterator():
        stream.read(raw or {})
    return stream


def _decided(run: Run) -> list[str]:
    """Calls that had a human's decision when the run started."""
    return list(run.step.questions.settled().values_list("tool_use_id", flat=True))

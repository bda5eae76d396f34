"""Taking over from a worker that died."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app import places
from tasks_app.agents.outcome import open_asks
from tasks_app.agents.port import Ending, RunResult
from tasks_app.agents.shelf import Transcript
from tasks_app.agents.stream import Stream
from tasks_app.agents.transcripts import deferred_call
from tasks_app.engine.conclude import ask_humans, fail, store_result
from tasks_app.engine.lease import Lease, kept
from tasks_app.engine.next_run import cost_before, transcript_of, undelivered
from tasks_app.engine.recorder import RunRecorder
from tasks_app.engine.stopping import never
from tasks_app.events.append import NewEvent
from tasks_app.models import EventKind, Outcome, QuestionKind, Run, Step, Task
from tasks_app.state.phases import Phase
from tasks_app.types import Ask

#: So many workers may die one after the other in one step.
CRASHES = 5


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
    with kept(lease):
        rows = Run.objects.filter(step__task=lease.task_id, outcome="").select_related("step__task__project")
        return [Salvaged(run, _reread(run), transcript_of(run)) for run in rows]


def note_crash(task: Task, found: Salvaged, lease: Lease) -> None:
    """Close a run that has no end. Called inside `lease.fenced()`.

    What was used counts, what was asked is asked now, and a run that had said all is taken as finished.
    """
    run, stream = found.run, found.stream
    asks = _open_asks(run, stream, may_ask=_could_ask(run))
    ending = stream.ending(asks)[0] if stream.result or asks else Ending.STOPPED
    if ending is Ending.ASKED and stream.deferred in _decided(run):
        ending = Ending.STOPPED
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=0.0)
    recorder.write(NewEvent(EventKind.NOTE, {"text": "The worker of this run died; it goes on from here."}))
    usage = stream.usage(cost_before=cost_before(run))
    store_result(run, RunResult(ending, usage=usage, model=stream.model or run.model), recorder)
    undelivered(run.step, run, found.transcript)  # what the agent has got by now is noted
    if ending is Ending.STOPPED:
        Run.objects.filter(pk=run.pk).update(outcome=Outcome.CRASHED)
        _fail_if_hopeless(run.step, lease)
    if ending is Ending.ASKED:
        waits_at = deferred_call(found.transcript)
        ask_humans(task, run, asks, deferred=waits_at, recorder=recorder, epoch=lease.epoch)


def _fail_if_hopeless(step: Step, lease: Lease) -> None:
    """A task that kills whoever works on it must not do so for ever, at some dollars each time."""
    told = step.transitions.filter(target=Phase.PENDING, actor__isnull=False).last()
    runs = step.runs.filter(started_at__gt=told.at) if told else step.runs.all()
    outcomes = list(runs.order_by("-number").values_list("outcome", flat=True)[:CRASHES])
    if outcomes == [Outcome.CRASHED] * CRASHES and step.phase == Phase.RUNNING:
        fail(lease, step, f"Its worker died {CRASHES} times in a row while this step was at work.")


def _could_ask(run: Run) -> bool:
    """By the threshold as it was for this run; or because it was given an answer to a question."""
    threshold = run.step.task.threshold if run.threshold is None else run.threshold
    return threshold > 0 or run.answers_handed_in.filter(kind=QuestionKind.CLARIFICATION).exists()


def _open_asks(run: Run, stream: Stream, *, may_ask: bool) -> list[Ask]:
    """What was asked and is not yet known, noted questions included."""
    task = run.step.task
    known = set(task.questions.values_list("tool_use_id", flat=True))
    found = open_asks(
        stream, _decided(run), may_ask=may_ask, workspace=places.workspace(task).path, home=places.home(task)
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

"""Deaths of workers and of agents' processes in one step, and when there are too many.

A death is no failed attempt: the session goes on. But a step whose agent or worker is killed repeatedly, and
which makes no progress, must not go on for ever: each run costs money.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

from django.db.models import Q, QuerySet

from tasks_app.agent.outcome import open_asks
from tasks_app.agent.port import Ending, RunResult
from tasks_app.agent.stream import Stream
from tasks_app.agent.transcript_port import Transcript
from tasks_app.agent.transcripts import deferred_call
from tasks_app.config.pipeline import step_from_json
from tasks_app.core.phases import Phase
from tasks_app.core.types import Ask
from tasks_app.engine.lease import Lease
from tasks_app.engine.prompts.review_requests import undelivered_reviews
from tasks_app.engine.runs.conclude import ask_humans, fail, store_result
from tasks_app.engine.runs.next_run import cost_before, transcript_of, undelivered
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import never
from tasks_app.history.events.blocks import NewEvent, Selection
from tasks_app.history.events.reading import Events, has_events
from tasks_app.models import EventKind, Outcome, Run, Step, Task, paths
from tasks_app.sandbox import killed_by

#: Deaths in a row without progress after which the step fails.
DEATHS = 5
#: Times that a step's agent may be killed altogether since a human last resumed it, progress or not.
KILLS = 20
_SPOKE = (EventKind.TEXT, EventKind.THINKING, EventKind.TOOL_USE)


def deaths_without_progress(step: Step) -> int:
    """Count how often in a row a run of the step died before it got further than the run before it.

    Progress is a turn or the result of a tool. Repeating the call in which the last run died is no progress.
    Runs that the portal stopped do not count as deaths, but their progress ends the row.
    """
    runs = list(_runs_since_resumed(step).exclude(outcome="").order_by("-number")[: 4 * DEATHS])
    count = 0
    for run, earlier in pairwise([*runs, None]):
        if run is None or run.outcome not in (Outcome.CRASHED, Outcome.INTERRUPTED):
            break
        if _made_progress(run, earlier):
            break
        count += run.outcome == Outcome.CRASHED
    return count


def fail_if_hopeless(step: Step, lease: Lease) -> bool:
    """Fail a step that is killed too often. Return whether it failed."""
    deaths = deaths_without_progress(step)
    crashed = _runs_since_resumed(step).filter(outcome=Outcome.CRASHED)
    kills = sum(1 for run in crashed if killed_by(run.exit_code))
    if step.phase != Phase.RUNNING or (deaths < DEATHS and kills < KILLS):
        return False
    fail(lease, step, _reason_of_deaths(step, deaths, kills))
    return True


def _reason_of_deaths(step: Step, deaths: int, kills: int) -> str:
    last = step.runs.order_by("-number").first()
    signal = killed_by(last.exit_code) if last else ""
    if not signal:
        return (
            f"The worker died {deaths} times in a row during this step, and the agent made no progress in "
            "between. Look into the worker's log and the system's log (memory?), then resume the task."
        )
    times = f"{deaths} times in a row without any progress" if deaths >= DEATHS else f"{kills} times"
    return (
        f"The agent's process was killed from outside ({signal}) {times}. Usually the system does that when "
        "memory runs out (look for “Out of memory” in its log). Give the machine more memory, run fewer "
        "tasks at once, or let the step do less at once; then resume the task."
    )


def _runs_since_resumed(step: Step) -> QuerySet[Run]:
    """Return the step's runs since a human last started or resumed it."""
    resumed = step.transitions.filter(target=Phase.PENDING, actor__isnull=False).last()
    runs = step.runs.filter(started_at__gt=resumed.at) if resumed else step.runs.all()
    return runs.annotate(had_result=has_events(EventKind.TOOL_RESULT), spoke=has_events(*_SPOKE))


def _made_progress(run: Run, earlier: Run | None) -> bool:
    if run.had_result:  # type: ignore[attr-defined]
        return True
    if not run.spoke:  # type: ignore[attr-defined]
        return False
    call = _last_call(run)
    return earlier is None or not call or call != _last_call(earlier)


def _last_call(run: Run) -> str:
    """Return name and input of the run's last tool call, "" if it made none."""
    event = Events(Q(run=run)).of_kinds([EventKind.TOOL_USE]).last()
    if event:
        return json.dumps([event.payload["name"], event.payload["input"]], sort_keys=True)
    return ""


# Closing runs that have no end, because their worker died or a temporary fault interrupted them.


@dataclass(frozen=True)
class RecoveredRun:
    """A run without an end, with its messages and its transcript as they were stored."""

    run: Run
    stream: Stream
    transcript: Transcript


def recover(lease: Lease) -> list[RecoveredRun]:
    """Read the task's runs that have no end. We hold the lease, so their worker is gone.

    Reading a long run is slow, so it is done before the transaction that closes the run.
    """
    rows = Run.objects.filter(step__task=lease.task_id, outcome="").select_related("step__task__project")
    return [RecoveredRun(run, _stored_stream(run), transcript_of(run)) for run in rows]


def close_crashed_run(task: Task, recovered: RecoveredRun, lease: Lease) -> None:
    """Close a run whose worker died. Must be called while the lease is locked."""
    note = "The worker of this run died. The next run continues from here."
    if _close_run(task, recovered, lease, Outcome.CRASHED, note=note):
        fail_if_hopeless(recovered.run.step, lease)


def close_interrupted_run(task: Task, recovered: RecoveredRun, lease: Lease, fault: str) -> None:
    """Close a run that a temporary fault interrupted. Must be called while the lease is locked."""
    note = f"{fault}. The run was interrupted and is tried again."
    _close_run(task, recovered, lease, Outcome.INTERRUPTED, note=note)


def _close_run(task: Task, recovered: RecoveredRun, lease: Lease, outcome: Outcome, *, note: str) -> bool:
    """Store the end of the run. Return whether it had not ended by itself, so that `outcome` was stored.

    Its usage counts, its open questions are asked now, and a run that had reported its result has finished.
    """
    run, stream = recovered.run, recovered.stream
    asks = _open_asks(run, stream)
    ending = stream.ending(asks)[0] if stream.result or asks else Ending.STOPPED
    if ending is Ending.ASKED and stream.deferred in _decided_calls(run):
        ending = Ending.STOPPED
    recorder = RunRecorder(lease, run, stop_signal=never, timeout=0.0)
    recorder.write(NewEvent(EventKind.NOTE, {"text": note}))
    store_result(run, _result(run, stream, ending), recorder)
    # Both mark what the agent has received.
    undelivered(run.step, run, recovered.transcript)
    undelivered_reviews(run.step, run, recovered.transcript)
    if ending is Ending.STOPPED:
        Run.objects.filter(pk=run.pk).update(outcome=outcome)
    if ending is Ending.ASKED:
        waits_at = deferred_call(recovered.transcript)
        ask_humans(task, run, asks, deferred=waits_at, recorder=recorder, epoch=lease.epoch)
    return ending is Ending.STOPPED


def _result(run: Run, stream: Stream, ending: Ending) -> RunResult:
    """Return the run's result. Usage that the proxy counted, in the run's row, precedes the stream's."""
    streamed = stream.usage(cost_before=cost_before(run))
    if not run.metered:
        return RunResult(ending, usage=streamed, model=stream.model or run.model)
    reported = streamed.cost_usd if stream.result and not run.rehearsed else None
    return RunResult(
        ending, usage=run.usage, by_model=run.usage_by_model, metered=True, reported_cost_usd=reported,
        model=run.model,
    )  # fmt: skip


def _open_asks(run: Run, stream: Stream) -> list[Ask]:
    """Return the questions of the run that have no row yet, those in the ask spool included.

    If the step was retried since, return none: an answer would belong to an attempt that no longer counts.
    """
    if run.number < run.step.first_run:
        return []
    task = run.step.task
    threshold = task.threshold if run.threshold is None else run.threshold
    step = step_from_json(run.step.config)
    known = set(task.questions.values_list("tool_use_id", flat=True))
    found = open_asks(
        stream,
        _decided_calls(run),
        may_ask=threshold > 0,
        ask_before=(*task.ask_before, *step.ask_before),
        workspace=paths.workspace(task).path,
        home=paths.home(task),
        placement=paths.placement(),
        allow_write=step.allow_write,
    )
    return [ask for ask in found if ask.way != "command" or ask.tool_use_id not in known]


def _stored_stream(run: Run) -> Stream:
    """Read the run's messages again, as they were stored with its events."""
    stream = Stream()
    for event in Events(Q(run=run), Selection(from_agent=True), raw=True).of_run(run):
        stream.read(event.raw or {})
    return stream


def _decided_calls(run: Run) -> list[str]:
    """Return the calls whose answers the run was given at its start."""
    return list(run.step.questions.settled().values_list("tool_use_id", flat=True))

"""What running tasks do now: their newest events and the tool call that has no result yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, reduce
from itertools import takewhile
from operator import or_

from django.db.models import Max, OuterRef, Prefetch, Q, Subquery

from tasks_app.agent.tools import was_refused
from tasks_app.core.phases import Phase
from tasks_app.history.events.calls import outcomes_of_waiting_calls
from tasks_app.history.events.reading import Events, may_be_compacted
from tasks_app.models import (
    Event,
    EventKind,
    Outcome,
    Run,
    Step,
    Task,
)
from tasks_app.web.rendering.log_entries import event_summary

#: Events of a run that are looked at. An agent makes a few calls at once, never as many.
_NEWEST = 12
_LINES = 4
#: What the live page leaves out of its lines.
_NOT_LISTED = frozenset({EventKind.SYSTEM, EventKind.TOOL_RESULT})


@dataclass(frozen=True)
class Activity:
    """A running task, its newest run and the newest events of that run, in order."""

    task: Task
    run: Run | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def working_since(self) -> datetime | None:
        """When the present run began; before the first, since when the task works.

        None while the next one has not begun. The sum over all runs, such as after an answer or *Resume*,
        says nothing about what works now.
        """
        if self.run is None:
            return self.task.worked_since
        if self.is_between_runs:
            return None
        return self.run.started_at

    @property
    def is_between_runs(self) -> bool:
        """Return whether the next run has not begun, so that what the newest one said is not about now."""
        return bool(self.run and self.run.ended_at and not self.checking)

    @property
    def newest(self) -> Event | None:
        """The last output of the run; None while the next one has not begun."""
        if self.is_between_runs:
            return None
        return next(reversed(self.events), None)

    @cached_property
    def call(self) -> Event | None:
        """The last tool call without a result; None after the end of the run."""
        if self.run is None or self.run.ended_at:
            return None
        results = {
            event.payload.get("tool_use_id") for event in self.events if event.kind == EventKind.TOOL_RESULT
        }
        calls = [event for event in self.events if event.kind == EventKind.TOOL_USE]
        return next((call for call in reversed(calls) if call.payload.get("id") not in results), None)

    @property
    def checking(self) -> bool:
        """Return whether the agent has ended its turn and its checks have not ended yet."""
        return bool(self.run and self.run.outcome == Outcome.FINISHED and self.run.checks is None)

    @property
    def command(self) -> str:
        """The call in one line: `$ make test`."""
        return event_summary(self.call) if self.call else ""

    @property
    def lines(self) -> list[tuple[Event, str]]:
        """The last events that say something, each in one line, without the current call."""
        return _lines([event for event in self.events if event is not self.call])[-_LINES:]


def activities(tasks: Iterable[Task]) -> dict[int, Activity]:
    """Return the activity of each running task by task id; two queries, or none if nothing runs."""
    running = [task for task in tasks if task.shown_phase == Phase.RUNNING]
    if not running:
        return {}
    runs = _newest_runs(running)
    events = _newest_events(runs.values())
    found = {task.pk: Activity(task) for task in running}
    for task in running:
        if run := runs.get(task.pk):
            found[task.pk] = Activity(task, run, events.get(run.pk, []))
    return found


def last_lines(run: Run, *, before_call: str = "") -> list[tuple[Event, str]]:
    """Return the last events of a run that say something, each in one line, without its questions.

    With `before_call` those before the call with this id: others of its message follow it.
    """
    said = set(EventKind.values) - {EventKind.QUESTION}
    stored = Events(Q(run=run), blocks=may_be_compacted(run.ended_at)).of_kinds(said)
    events = stored.before(None, _NEWEST)[::-1]
    if before_call:
        events = list(takewhile(lambda event: event.payload.get("id") != before_call, events))
    return _lines(events, outcomes_of_waiting_calls(run.step.task_id, events))


def _lines(events: Collection[Event], decisions: Mapping[str, str] | None = None) -> list[tuple[Event, str]]:
    """Return the events that say something, each in one line; a call that was not made says so."""
    outcomes = dict(decisions or {})
    for event in events:
        payload = event.payload
        if event.kind == EventKind.TOOL_RESULT and payload.get("is_error"):
            refused = "refused" if was_refused(str(payload.get("text", ""))) else ""
            outcomes[str(payload.get("tool_use_id"))] = str(payload.get("turned_down") or refused)
    listed = []
    for event in events:
        line = "" if _is_left_out(event) else event_summary(event)
        outcome = event.kind == EventKind.TOOL_USE and outcomes.get(str(event.payload.get("id")))
        if line:
            listed.append((event, f"{line} → {outcome}" if outcome else line))
    return listed


def _is_left_out(event: Event) -> bool:
    """Leave out the end of a run that ended well: its text “success” would pass for the agent's words."""
    ended_well = event.kind == EventKind.RESULT and not event.payload.get("is_error")
    return ended_well or event.kind in _NOT_LISTED


def shown_steps() -> Prefetch[str]:
    """Return a prefetch of what the progress strip of a task shows."""
    steps = Step.objects.only("task", "position", "name", "phase", "started_at").order_by("position")
    return Prefetch("steps", queryset=steps)


def _newest_runs(tasks: Collection[Task]) -> dict[int, Run]:
    """Return the newest run of each task by task id."""
    runs = Run.objects.filter(step__task__in=[task.pk for task in tasks]).order_by()
    newest = runs.values("step__task").annotate(newest=Max("pk")).values("newest")
    found = Run.objects.filter(pk__in=newest).select_related("step").defer("prompt")
    # Not Max("events__seq"): that would read all events of each run, and an agent at work may have 100,000.
    last = Event.objects.filter(run=OuterRef("pk")).order_by("-seq").values("seq")[:1]
    return {run.step.task_id: run for run in found.annotate(last_seq=Subquery(last))}


def _newest_events(runs: Collection[Run]) -> dict[int, list[Event]]:
    """Return the newest events of each run by run id, by the index of (run, seq)."""
    spans = [
        Q(run=run, seq__gt=run.last_seq - _NEWEST)  # type: ignore[attr-defined]
        for run in runs
        if run.last_seq is not None  # type: ignore[attr-defined]
    ]
    found: dict[int, list[Event]] = defaultdict(list)
    if spans:
        for event in Event.objects.filter(reduce(or_, spans)).defer("raw").order_by("run_id", "seq"):
            found[event.run_id].append(event)
    for run in runs:
        if may_be_compacted(run.ended_at):  # it waited for long, and its next run begins just now
            found[run.pk] = Events(Q(run=run)).before(None, _NEWEST)[::-1]
    return found

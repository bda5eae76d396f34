"""A task's log in parts of a fixed size: the end, before or after a part, or around an event.

Whatever is asked for costs the same number of queries and of rows, however long the log is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import dropwhile, islice

from django.db.models import Exists, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.history.deeds import deeds_of, rows_of_deeds
from tasks_app.history.events.blocks import FAILURES, Selection
from tasks_app.history.events.calls import calls_and_results_at_end, outcomes_of_waiting_calls
from tasks_app.history.events.reading import Events, events_with, last_event_with, may_be_compacted
from tasks_app.models import Event, EventBlock, EventKind, Outcome, Reason, Run, Task, prefetch_answerers
from tasks_app.web.access import is_htmx, number_from, render_part_or_page, task_or_404
from tasks_app.web.rendering.log_entries import (
    UNSEEN,
    Entry,
    Remark,
    change_requests_of,
    entries_of,
    entry_of,
    remarks_of,
)
from tasks_app.web.tasks.head import Tab, head_context

PAGE = 100
#: Found events are counted up to this number.
MOST_FOUND = 1000
#: The newest runs that ended at a call that waits, whose calls are told anew when the task changes.
_TOLD_ANEW = 3
_LONGEST_WORDS = 200


class Only(StrEnum):
    """A filter of the log."""

    ALL = "all"
    TEXT = "text"
    TOOLS = "tools"
    ERRORS = "errors"

    @property
    def label(self) -> str:
        return {"all": "All", "text": "Text only", "tools": "Tools", "errors": "Errors"}[self]


_SHOWN = {
    Only.ALL: Selection.of(set(EventKind.values) - UNSEEN),
    Only.TEXT: Selection.of([EventKind.TEXT, EventKind.QUESTION, EventKind.ANSWER]),
    Only.TOOLS: Selection.of([EventKind.TOOL_USE, EventKind.TOOL_RESULT, EventKind.CHECK]),
    Only.ERRORS: FAILURES,
}


@dataclass(frozen=True)
class LogPart:
    """A part of a log. `first` and `last` are ids of events, for requesting the neighbouring parts.

    `target`: the event that was looked for. `place` and `total`: which of how many found events it is.
    `begins` and `ends`: where in the log, in percent. `remarks`: what people said or did after the
    newest event. `decisions`: what became of calls that a page may have already, by their ids.
    """

    entries: list[Entry]
    first: int
    last: int
    earlier: bool = False
    later: bool = False
    only: Only = Only.ALL
    target: int = 0
    place: int = 0
    total: int = 0
    begins: int = 0
    ends: int = 100
    remarks: list[Remark] = field(default_factory=list)
    decisions: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> Run | None:
        return next((entry.run for entry in self.entries), None)


class Log:
    """The events of a task. Ids rise in time, because one process at a time writes to a task."""

    def __init__(self, task: Task, only: Only = Only.ALL) -> None:
        self.only = only
        self._task = task
        newest = Event.objects.filter(run=OuterRef("pk")).order_by("-seq").values("seq")[:1]
        in_blocks = (
            EventBlock.objects.filter(run=OuterRef("pk")).order_by("-first_seq").values("last_seq")[:1]
        )
        runs = Run.objects.filter(step__task=task).order_by("pk")
        last_seq = Coalesce(Subquery(newest), Subquery(in_blocks))
        asked = Exists(change_requests_of(task))
        deeds = map(Exists, rows_of_deeds(task))
        rows = list(runs.values_list("pk", last_seq, "ended_at", "reason", asked, "outcome", *deeds))
        self._lengths = {pk: 0 if last is None else last + 1 for pk, last, *_ in rows}
        #: Runs that ended at a call that waits.
        self._halted = [pk for pk, _, _, _, _, outcome, *_ in rows if outcome == Outcome.ASKED]
        self._runs = list(self._lengths)
        after_review = {pk for pk, _, _, reason, *_ in rows if reason == Reason.REVIEW}
        #: Agents reply in threads from the first run after a review on.
        self._replying = list(dropwhile(lambda run: run not in after_review, self._runs))
        self._is_reviewed = any(reviewed for _, _, _, _, reviewed, *_ in rows)
        self._has_deeds = not rows or any(any(found) for _, _, _, _, _, _, *found in rows)
        compacted = any(may_be_compacted(ended_at) for _, _, ended_at, *_ in rows)
        self._all = Events(Q(run__in=self._runs), related="run__step", blocks=compacted)
        self._shown = self._all.only(_SHOWN[only])

    def latest(self) -> LogPart:
        found = self._shown.before(None, PAGE + 1)
        return self._part(found[:PAGE][::-1], earlier=found[PAGE:])

    def before(self, number: int) -> LogPart:
        found = self._shown.before(number, PAGE + 1)
        return self._part(found[:PAGE][::-1], earlier=found[PAGE:], later=True)

    def after(self, number: int) -> LogPart:
        """Return newer events, at most one part, in case the page slept for an hour."""
        found = self._shown.after(number, PAGE + 1)
        if not found:
            return LogPart([], number, number, only=self.only)
        earlier = self._shown.before(number + 1, 1)
        return self._part(found[:PAGE], earlier=earlier, later=len(found) > PAGE, has_calls=True)

    def around(self, number: int) -> LogPart:
        """Return the part around the event with this id, or the next shown one."""
        half = PAGE // 2
        before = self._shown.before(number, half + 1)
        after = self._shown.after(number - 1, PAGE - half + 1)
        shown, rest = after[: PAGE - half], after[PAGE - half :]
        events = [*before[:half][::-1], *shown]
        target = (shown or before)[0].pk if events else 0
        return self._part(events, earlier=before[half:], later=bool(rest), target=target)

    def of_run(self, run_id: int) -> LogPart:
        """Return the part at the start of a run. Raises Http404 for a run of another task."""
        if run_id not in self._runs:
            raise Http404(f"There is no run {run_id} in this task.")
        first = replace(self._shown, runs=Q(run=run_id)).first()
        return self.around(first.pk if first else 0)

    def of_question(self, number: int) -> LogPart:
        """Return the part around the question with this number. Raises Http404."""
        found = self._all.of_kinds([EventKind.QUESTION]).first_with("number", number)
        if found is None:
            raise Http404(f"There is no question {number} in this log.")
        return self.around(found.pk)

    def next_error(self, number: int) -> LogPart | None:
        """Return the part around the first failure after the event, or the first of all, or None."""
        failed = self._all.only(FAILURES)
        found = failed.after(number, 1) or failed.after(0, 1)
        return self.around(found[0].pk) if found else None

    def beginning(self) -> LogPart:
        found = self._shown.after(0, PAGE + 1)
        return self._part(found[:PAGE], earlier=[], later=len(found) > PAGE)

    def find(self, words: str, *, after: int = 0, before: int = 0) -> LogPart | None:
        """Return the part around the next event with the words after one, or the previous one before one.

        The search continues at the other end of the log. Returns None if there is no match. Up to MOST_FOUND
        events are counted, which is one pass over the log; only a target beyond them takes another.
        """
        found = list(islice(events_with(self._shown, words), MOST_FOUND))
        if not found:
            return None
        target = self._previous(found, words, before) if before else self._next(found, words, after)
        place = found.index(target) + 1 if target in found else 0
        return replace(self.around(target), place=place, total=len(found))

    def _next(self, found: list[int], words: str, after: int) -> int:
        if after < found[-1]:
            return next(event for event in found if event > after)
        if len(found) < MOST_FOUND:
            return found[0]
        return next(events_with(self._shown, words, after=after), found[0])

    def _previous(self, found: list[int], words: str, before: int) -> int:
        earlier = [event for event in found if event < before]
        if len(found) < MOST_FOUND or (earlier and before <= found[-1]):
            return (earlier or found)[-1]
        last = last_event_with(self._shown, words, after=found[-1], before=before if earlier else None)
        return last or found[-1]

    def _part(
        self,
        events: list[Event],
        *,
        earlier: list[Event],
        later: bool = False,
        target: int = 0,
        has_calls: bool = False,
    ) -> LogPart:
        """Make a part. `earlier` is the preceding event, to show where a run begins.

        `has_calls`: the reader has the part before it, with the calls whose results begin this one.
        """
        last_run = since = None
        if earlier:
            last_run, since = earlier[0].run_id, earlier[0].at
        first, last, begins, ends = 0, 0, 0, 100
        if events:
            first, last = events[0].pk, events[-1].pk
        if self.only is Only.ERRORS:
            events = sorted([*self._calls_of(events), *events], key=lambda event: event.pk)
        if events:
            begins, ends = self._percent(events[0]), self._percent(events[-1])
        calls = []
        if earlier and (results := _without_call(events)):
            halted = [pk for pk in self._halted if pk < results[0].run_id][-1:]
            calls = calls_and_results_at_end(self._all, halted)
            if not has_calls:
                calls += self._calls_of(results)
        known = list(events)
        if later and events and events[-1].run_id in self._halted:
            known += calls_and_results_at_end(self._all, [events[-1].run_id])
        decisions = outcomes_of_waiting_calls(self._task.pk, known)
        entries = entries_of(events, last_run=last_run, earlier_calls=calls, decisions=decisions)
        prefetch_answerers([entry.run for entry in entries if entry.starts_run or entry is entries[0]])
        remarks = self._remarks(since=since)
        for entry in entries:
            while remarks and remarks[0].at <= entry.at:
                entry.remarks.append(remarks.pop(0))
        return LogPart(
            entries, first, last, bool(earlier), later, self.only, target, begins=begins, ends=ends,
            remarks=[] if later else remarks,
        )  # fmt: skip

    def remarks_after_end(self) -> list[Remark]:
        """Return what people said in reviews, and did to the task, after the newest event."""
        newest = self._shown.before(None, 1)
        return self._remarks(since=newest[0].at if newest else None)

    def newest_decisions(self) -> dict[str, str]:
        """Return what became of the newest calls that wait or waited for a human, by their ids."""
        calls = calls_and_results_at_end(self._all, self._halted[-_TOLD_ANEW:])
        return outcomes_of_waiting_calls(self._task.pk, calls)

    def _remarks(self, *, since: datetime | None) -> list[Remark]:
        found = []
        if self._has_deeds:
            found = [Remark(one.key, one.at, deed=one) for one in deeds_of(self._task)]
        if self._is_reviewed or self._replying:
            found += remarks_of(self._task, runs=self._replying)
            found.sort(key=lambda one: one.at)
        return [one for one in found if since is None or one.at > since]

    def _calls_of(self, results: list[Event]) -> list[Event]:
        """Return the tool calls of these results, which a failure alone does not show."""
        ids = {event.payload.get("tool_use_id") for event in results if event.kind == EventKind.TOOL_RESULT}
        if not ids:
            return []
        runs = Q(run__in={event.run_id for event in results})
        calls = replace(self._all, runs=runs).of_kinds([EventKind.TOOL_USE])
        return calls.with_payload_ids({one for one in ids if one}, before=results[-1].pk)

    def _percent(self, event: Event) -> int:
        """Return where in the log an event is. Without counting: each run numbers its events from 0."""
        before = sum(length for run, length in self._lengths.items() if run < event.run_id)
        return round(100 * (before + event.seq) / max(1, sum(self._lengths.values()) - 1))


def _without_call(events: list[Event]) -> list[Event]:
    """Return the results whose calls are not among the events."""
    calls = {event.payload.get("id") for event in events if event.kind == EventKind.TOOL_USE}
    results = [event for event in events if event.kind == EventKind.TOOL_RESULT]
    return [event for event in results if event.payload.get("tool_use_id") not in calls]


def task_log(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render a part of the log.

    `?after=N`: what came since event N; `?before=N`: the part before it; `?around=N`, `?run=ID`,
    `?question=N`: there; `?error=N`: the next failure after event N; `?find=WORDS`: the first event with the
    words, with `&after=N` or `&before=N` the next or previous one; `?beginning`: the first part. Else the
    last part. `?remarks`: only what people said and did after the end.

    `?only=text|tools|errors` leaves out the rest.
    """
    task = task_or_404(request, task_id)
    log = Log(task, _only(request))
    if "remarks" in request.GET:
        said = LogPart([], 0, 0, remarks=log.remarks_after_end(), decisions=log.newest_decisions())
        return render(request, "tasks/_log_remarks.html", {"log": said})
    part = _wanted(request, log)
    if is_htmx(request):
        if part is None or ("after" in request.GET and not part.entries):
            return HttpResponse(status=204)
        return render(request, "tasks/_log_part.html", {"log": part})
    context = head_context(request, task, Tab.LOG) | {
        "log": part or LogPart([], 0, 0, only=log.only),
        "kinds": list(Only),
        "words": _search_words(request),
    }
    return render(request, "tasks/log_page.html", context)


def task_event(request: HttpRequest, task_id: int, event_id: int) -> HttpResponse:
    """Render a complete event, of which the log shows the beginning."""
    task = task_or_404(request, task_id)
    event = Events(Q(run__step__task=task), related="run__step").get(event_id)
    if event is None:
        raise Http404(f"There is no event {event_id} in this task.")
    context = {"task": task, "entry": entry_of(event, whole=True)}
    return render_part_or_page(request, "tasks/_event_in_full.html", "tasks/event_page.html", context)


def _wanted(request: HttpRequest, log: Log) -> LogPart | None:
    if words := _search_words(request):
        near = {name: _event_id(request, name) for name in ("after", "before") if name in request.GET}
        return log.find(words, **near)
    if "beginning" in request.GET:
        return log.beginning()
    ways = {
        "after": log.after,
        "before": log.before,
        "around": log.around,
        "run": log.of_run,
        "question": log.of_question,
        "error": log.next_error,
    }
    for name, way in ways.items():
        if name in request.GET:
            return way(_event_id(request, name))
    return log.latest()


def _only(request: HttpRequest) -> Only:
    try:
        return Only(request.GET.get("only", Only.ALL))
    except ValueError:
        raise Http404("There is no such part of a log.") from None


def _search_words(request: HttpRequest) -> str:
    """Return what is searched for; a NUL, which no database compares, is left out."""
    return request.GET.get("find", "").replace("\0", "").strip()[:_LONGEST_WORDS]


def _event_id(request: HttpRequest, name: str) -> int:
    number = number_from(request.GET[name])
    if number is None:
        raise Http404(f"“{request.GET[name]}” is not the number of an event.")
    return number

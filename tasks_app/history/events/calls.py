"""What became of tool calls that wait for a human, were set aside, or failed after their approval."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from django.db.models import Q

from tasks_app.agent.gate.patterns import SUBAGENTS
from tasks_app.history.events.blocks import OpenBlock
from tasks_app.history.events.lines import shorten
from tasks_app.history.events.reading import Events
from tasks_app.models import (
    Event,
    EventBlock,
    EventKind,
    Outcome,
    Question,
    QuestionKind,
    QuestionState,
    Verdict,
)

#: Of a call that nobody was asked about, because others of its message waited, too.
NOT_MADE = "not made (asked one at a time)"
#: Events at the end of runs in which their waiting calls are looked for.
_END = 60
#: Events at the beginning of a run in which the result of the approved call is looked for.
_BEGINNING = 50


def calls_and_results_at_end(events: Events, runs: Collection[int]) -> list[Event]:
    """Return the last calls and results of these runs, with at most two queries."""
    if not runs:
        return []
    kinds = (EventKind.TOOL_USE, EventKind.TOOL_RESULT)
    return replace(events, runs=Q(run__in=runs)).of_kinds(kinds).before(None, _END)


def outcomes_of_waiting_calls(task_id: int, events: Iterable[Event]) -> dict[str, str]:
    """Return by its id what became of each call without a result in its own run, if that run ended at a call
    that waits. `events` are calls with the results of their runs. One query, or none.
    """
    calls, answered = [], set()
    for event in events:
        if event.kind == EventKind.TOOL_USE and event.run.outcome == Outcome.ASKED:
            calls.append(event)
        elif event.kind == EventKind.TOOL_RESULT:
            answered.add((event.run_id, event.payload.get("tool_use_id")))
    waiting = [
        str(call.payload.get("id"))
        for call in calls
        if (call.run_id, call.payload.get("id")) not in answered
        and call.payload.get("name") not in SUBAGENTS  # it has worked, although the run ended before
    ]
    if not waiting:
        return {}
    asked = Question.objects.filter(task=task_id, tool_use_id__in=waiting).order_by("pk")
    said = {one.tool_use_id: _said_of(one) for one in asked.select_related("answered_by", "applied")}
    return {call: said.get(call, NOT_MADE) for call in waiting}


def _said_of(question: Question) -> str:
    """Return what a human said to the call; empty for a question, which the log shows with its answer."""
    if question.kind not in (QuestionKind.APPROVAL, QuestionKind.PLAN):
        return ""
    if question.is_open:
        return "waits for approval"
    if question.state == QuestionState.WITHDRAWN:
        return "not made (the task was cancelled)"
    said = f"{question.outcome.lower()} by {question.answerer}"
    if question.is_turned_down and question.notes:
        said += f": {shorten(question.notes)}"
    return said


def failed_approvals(questions: Iterable[Question]) -> set[int]:
    """Return the ids of those approvals whose call was made and failed, with at most two queries.

    The result stands at the beginning of the run that was given the approval.
    """
    approved = {
        (one.handed_in_id, one.tool_use_id): one.pk
        for one in questions
        if one.kind == QuestionKind.APPROVAL and one.verdict == Verdict.APPROVED and one.handed_in_id
    }
    if not approved:
        return set()
    first = Event.objects.filter(run__in={run for run, _ in approved}, seq__lt=_BEGINNING)
    errors = first.filter(kind=EventKind.TOOL_RESULT, payload__is_error=True)
    failed = list(errors.order_by().values_list("run_id", "payload__tool_use_id"))
    blocks = EventBlock.objects.filter(run__in={run for run, _ in approved}, first_seq=0, failures__gt=0)
    for block in blocks:
        opened = OpenBlock(block)
        for place, kind in enumerate(opened.kinds[:_BEGINNING]):
            if kind == EventKind.TOOL_RESULT and opened.payload(place).get("is_error"):
                failed.append((block.run_id, opened.payload(place).get("tool_use_id")))
    return {approved[key] for key in failed if key in approved}

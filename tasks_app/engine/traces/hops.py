"""What happened within a run or a wait, and when: the events of their spans (O3).

It is read when a span is sent, mostly from rows that are there anyway. What only one process saw is noted
besides (`history/noted_hops.py`). Without an endpoint it costs nothing. Rows that are gone by then, such as
compacted events, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tasks_app.core.hops import HopName
from tasks_app.core.phases import Phase
from tasks_app.models import EventKind, Question, Run, Span, SpanKind, Transition

#: What happened, and when.
Hop = tuple[str, datetime]


def hops_of(row: Span) -> list[Hop]:
    """Return the hops of a span in the order of their times; most are those of runs and waits."""
    found: Iterator[Hop] = iter(())
    if row.kind == SpanKind.RUN and row.run is not None:
        found = _of_run(row.run)
    elif row.kind == SpanKind.WAIT:
        found = _of_wait(row)
    read = list(found)
    return sorted([*read, *_noted(row, read)], key=lambda hop: hop[1])


def _noted(row: Span, read: list[Hop]) -> Iterator[Hop]:
    """Yield what processes have noted.

    A web process that has started since may take the change that an answer makes for that of the question.
    """
    answers = [at for name, at in read if name == "answered"]
    for hop in row.noted_hops.all():
        is_news = hop.name in (HopName.NOTICE, HopName.SOCKET)
        if not (is_news and answers and hop.at > min(answers)):
            yield hop.name, hop.at


def questions_of(run: Run) -> list[Question]:
    """Return what the run asked. The portal's own questions about costs have another span."""
    return list(
        run.questions.of_agents().only("kind", "asked_at", "answered_at", "tool_use_id", "run").order_by("pk")
    )


def _of_run(run: Run) -> Iterator[Hop]:
    for at in run.events.order_by("seq").values_list("at", flat=True)[:1]:
        yield "first message", at
    given = list(run.answers_handed_in.values_list("tool_use_id", flat=True))
    results = run.events.filter(kind=EventKind.TOOL_RESULT, payload__tool_use_id__in=given)
    for at in results.values_list("at", flat=True) if given else ():
        yield "answer delivered", at
    if asked := questions_of(run):
        yield from _of_halt(run, asked)


def _of_halt(run: Run, asked: list[Question]) -> Iterator[Hop]:
    calls = [question.tool_use_id for question in asked]
    made = run.events.filter(kind=EventKind.TOOL_USE, payload__id__in=calls)
    for at in made.values_list("at", flat=True):
        yield "tool call read", at
    for at in run.events.filter(kind=EventKind.RESULT).values_list("at", flat=True):
        yield "deferral read", at
    for question in asked:
        yield "question stored", question.asked_at


def _of_wait(row: Span) -> Iterator[Hop]:
    for question in questions_of(row.run) if row.run is not None else ():
        if question.answered_at is not None:
            yield "answered", question.answered_at
    claims = Transition.objects.filter(task=row.task_id, step=None, target=Phase.RUNNING)
    for at in claims.filter(at__range=(row.started_at, row.ended_at)).values_list("at", flat=True):
        yield "claimed", at

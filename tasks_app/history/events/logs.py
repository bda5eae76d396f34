"""The three logs of a step, rendered from its runs and their events (H8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from enum import StrEnum

from django.db.models import QuerySet

from tasks_app.core.control_characters import strip_controls
from tasks_app.core.phases import ENDED
from tasks_app.history.events.lines import line, stamp
from tasks_app.models import Event, EventKind, Outcome, Reason, Run, Step, Task

#: Events read at a time: bounds the memory of a download.
PAGE = 100


class LogKind(StrEnum):
    """Which log of a step.

    OUTPUT: what the agent said, questions, answers, checks, notes and errors. REASONING: the whole
    dialogue in order. RAW: the messages of the agent process as they came, one JSON object per line.
    """

    OUTPUT = "output"
    REASONING = "reasoning"
    RAW = "raw"


_SHOWN: dict[LogKind, frozenset[EventKind]] = {
    LogKind.OUTPUT: frozenset(
        {
            EventKind.TEXT,
            EventKind.QUESTION,
            EventKind.ANSWER,
            EventKind.CHECK,
            EventKind.NOTE,
            EventKind.ERROR,
        }
    ),
    LogKind.REASONING: frozenset(EventKind) - {EventKind.SYSTEM},
    LogKind.RAW: frozenset(EventKind),
}


def render_log(step: Step, kind: LogKind) -> Iterator[str]:
    """Pieces of the log over all runs of the step, in order. Times are UTC.

    A run that still goes on is shown up to its newest event.
    """
    for run in Run.objects.filter(step=step).order_by("number"):
        yield from _raw(run) if kind is LogKind.RAW else _readable(run, step, kind)


def follow_log(
    task: Task, kind: LogKind, *, pause: Callable[[], None], step: Step | None = None
) -> Iterator[str]:
    """The log of a task, or of one step of it, and all that comes to it until the task has ended.

    `pause` is called between two looks. Everything comes from the rows, so it makes no difference which
    worker writes them, or whether one dies in between.
    """
    events = _shown(Event.objects.filter(run__step__task=task), kind).order_by("pk")
    if step is not None:
        events = events.filter(run__step=step)
    last, run = 0, None
    while True:
        over = Task.objects.filter(pk=task.pk, phase__in=ENDED).exists()  # before the last look, not after it
        for event in _after(events, last, kind):
            if event.run != run:
                yield from _change_of_run(run, event.run, kind)
                run = event.run
            last = event.pk
            yield raw_line(event, run=run.number) if kind is LogKind.RAW else line(event)
        if over:
            yield from _change_of_run(run, None, kind)
            return
        pause()


def _shown(events: QuerySet[Event], kind: LogKind) -> QuerySet[Event]:
    """Of RAW only what the agent process sent: the portal's own notes and answers are no messages of it."""
    events = events.filter(kind__in=_SHOWN[kind])
    return events.filter(raw__isnull=False) if kind is LogKind.RAW else events


def _after(events: QuerySet[Event], last: int, kind: LogKind) -> Iterator[Event]:
    bulky = ["run__prompt"] if kind is LogKind.RAW else ["raw", "run__prompt"]
    rows = events.select_related("run__step__task__project").defer(*bulky)
    while page := list(rows.filter(pk__gt=last)[:PAGE]):
        yield from page
        last = page[-1].pk


def _change_of_run(before: Run | None, after: Run | None, kind: LogKind) -> Iterator[str]:
    if kind is LogKind.RAW:
        return
    if before is not None:
        yield _footer(Run.objects.get(pk=before.pk))
    if after is not None:
        yield _header(after, after.step)


def _raw(run: Run) -> Iterator[str]:
    for event in _events(run, LogKind.RAW):
        yield raw_line(event, run=run.number)


def raw_line(event: Event, *, run: int) -> str:
    """The event of run number `run` as the agent process sent it, in one line of JSON."""
    entry = {"run": run, "seq": event.seq, "at": event.at.isoformat(), "kind": event.kind, "raw": event.raw}
    # Half of a surrogate pair cannot be encoded; as an escape it is what JSON says it is.
    return json.dumps(entry, ensure_ascii=False).encode(errors="backslashreplace").decode() + "\n"


def _readable(run: Run, step: Step, kind: LogKind) -> Iterator[str]:
    yield _header(run, step)
    for event in _events(run, kind):
        yield line(event)
    yield _footer(run)


def _events(run: Run, kind: LogKind) -> Iterator[Event]:
    """Page by page, not with one open cursor: a slow download must not pin SQLite's WAL."""
    rows = _shown(run.events.all(), kind).order_by("seq")
    if kind is not LogKind.RAW:
        rows = rows.defer("raw")
    page = list(rows[:PAGE])
    while page:
        yield from page
        page = list(rows.filter(seq__gt=page[-1].seq)[:PAGE])


def _header(run: Run, step: Step) -> str:
    task = step.task
    facts = {
        "Pipeline": task.pipeline,
        "Task": f"{task.title} ({task.project.name}/{task.slug})",
        "Step": f"{step.position} {step.name}",
        "Run": f"{run.number}, {Reason(run.reason).label}",
        "Model": run.model or "the agent's default",
        "Threshold": str(task.threshold),
        "Settings": json.dumps(step.config, ensure_ascii=False, sort_keys=True),
        "Sandboxed": "yes" if run.sandboxed else "no",
        **({"Network": run.network} if run.network else {}),
        "Started": f"{stamp(run.started_at)} (all times are UTC)",
    }
    return f"{'=' * 72}\n{_table(facts)}{'-' * 72}\n"


def _footer(run: Run) -> str:
    facts = {
        "Ended": stamp(run.ended_at) if run.ended_at else "not yet",
        "Exit code": "none" if run.exit_code is None else str(run.exit_code),
        "Outcome": Outcome(run.outcome).label if run.outcome else "none yet",
        **({"Error": run.error} if run.error else {}),
        "Duration": _duration(run),
        "Tokens": _tokens(run),
        "Cost": _cost(run),
    }
    return f"{'-' * 72}\n{_table(facts)}\n"


def _table(facts: dict[str, str]) -> str:
    return "".join(
        f"{name + ':':<12}{strip_controls(value).rstrip().replace(chr(10), chr(10) + ' ' * 12)}\n"
        for name, value in facts.items()
    )


def _duration(run: Run) -> str:
    if run.ended_at is None:
        return "not ended"
    return f"{(run.ended_at - run.started_at).total_seconds():.1f} s"


def _cost(run: Run) -> str:
    said = f" (the agent reported ${run.reported_cost_usd:.4f})" if run.agent_reports_other_cost else ""
    return f"${run.cost_usd:.4f}{said}"


def _tokens(run: Run) -> str:
    usage = run.usage
    return (
        f"{usage.input_tokens:,} in, {usage.output_tokens:,} out, "
        f"cache {usage.cache_write_tokens:,} written, {usage.cache_read_tokens:,} read"
    )

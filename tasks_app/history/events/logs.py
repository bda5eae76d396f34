"""Render the three logs of a step from its runs and their events (H8), and the log of a task's setups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum

from django.db.models import Q

from tasks_app.core.amounts import dollars
from tasks_app.core.phases import ENDED
from tasks_app.core.text import strip_controls
from tasks_app.history.deeds import deeds_of
from tasks_app.history.events.blocks import Selection
from tasks_app.history.events.calls import calls_and_results_at_end, outcomes_of_waiting_calls
from tasks_app.history.events.lines import format_event, format_time
from tasks_app.history.events.reading import Events
from tasks_app.models import (
    Event,
    EventKind,
    Outcome,
    Question,
    QuestionKind,
    Run,
    Setup,
    SetupOutcome,
    Step,
    Task,
)


class LogKind(StrEnum):
    """A log of a step.

    OUTPUT: the agent's texts, questions, answers, checks, notes and errors. REASONING: the whole dialogue in
    order. RAW: the unchanged messages of the agent process, one JSON object per line.
    """

    OUTPUT = "output"
    REASONING = "reasoning"
    RAW = "raw"


_EVENT_KINDS: dict[LogKind, frozenset[EventKind]] = {
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

#: What a run that asked did, by the kind of its question.
_ASKED: dict[str, str] = {
    QuestionKind.CLARIFICATION: "the agent asked and stopped",
    QuestionKind.APPROVAL: "the agent needs an approval",
    QuestionKind.PLAN: "the agent showed its plan",
}


def render_log(step: Step, kind: LogKind) -> Iterator[str]:
    """Yield the log of all runs of the step in order, in pieces. Times are UTC.

    A current run is included up to its newest event.
    """
    if kind is not LogKind.RAW:
        yield from _note_of_removal(step.task)
    runs = list(Run.objects.filter(step__task=step.task).defer("prompt").order_by("pk"))
    deeds = _Deeds(step.task, kind)
    for run, following in zip(runs, [*runs[1:], None], strict=False):
        until = following.started_at if following else None
        if run.step_id != step.pk:
            deeds.skip(until)
        elif kind is LogKind.RAW:
            for event in _events(Q(run=run), LogKind.RAW).of_run(run):
                yield raw_line(event, run=run.number)
        else:
            yield from deeds.until(run.started_at)
            yield _render_header(run, step)
            yield from _render_requests(run)
            outcomes = _outcomes(run, step.task_id, kind)
            for event in _events(Q(run=run), kind).of_run(run):
                yield from deeds.until(event.at)
                yield format_event(event, outcomes)
            yield from _render_replies(run)
            yield _render_footer(run)
            yield from deeds.until(until)
    if not runs and step.position == 1:
        yield from deeds.until(None)


class _Deeds:
    """What people did to a task, each line once; nothing of it stands in the raw log."""

    def __init__(self, task: Task, kind: LogKind) -> None:
        self._task = task
        self._is_raw = kind is LogKind.RAW
        self._told: set[str] = set()
        self.read_again()

    def read_again(self) -> None:
        self._left = []
        if not self._is_raw:
            self._left = [deed for deed in deeds_of(self._task) if deed.key not in self._told]

    def skip(self, at: datetime | None) -> None:
        for _ in self.until(at):
            pass

    def until(self, at: datetime | None) -> Iterator[str]:
        """Yield what is left up to this time, or all of it."""
        while self._left and (at is None or self._left[0].at <= at):
            deed = self._left.pop(0)
            self._told.add(deed.key)
            yield _render_remark("TASK", deed.at, [deed.text, *deed.said.splitlines()])


def follow_log(
    task: Task, kind: LogKind, *, pause: Callable[[], None], step: Step | None = None
) -> Iterator[str]:
    """Yield the log of a task or of one of its steps, and new entries until the task has ended.

    `pause` is called between two readings of the rows. It makes no difference which worker writes them, or
    whether one dies.
    """
    runs = Q(run__step__task=task)
    if step is not None:
        runs = Q(run__step=step)
    events = _events(runs, kind)
    last, run, deeds, is_raw = 0, None, _Deeds(task, kind), kind is LogKind.RAW
    outcomes: dict[str, str] = {}
    if not is_raw:
        yield from _note_of_removal(task)
    while True:
        ended = Task.objects.filter(pk=task.pk, phase__in=ENDED).exists()  # before the last reading
        deeds.read_again()
        for event in events.all(after=last):
            if event.run != run:
                yield from _run_boundary(run, None, kind)
                yield from deeds.until(event.run.started_at)
                yield from _run_boundary(None, event.run, kind)
                run = event.run
                outcomes = _outcomes(run, task.pk, kind)
            last = event.pk
            yield from deeds.until(event.at)
            yield raw_line(event, run=run.number) if is_raw else format_event(event, outcomes)
        if ended:
            yield from _run_boundary(run, None, kind)
            yield from deeds.until(None)
            return
        pause()


def _note_of_removal(task: Task) -> Iterator[str]:
    if task.log_removed_at is not None:
        at = format_time(task.log_removed_at)
        yield f"The log up to {at} was removed, because it was old.\n"


def _events(runs: Q, kind: LogKind) -> Events:
    """Return the events of a log. RAW has no notes and answers, which the agent process did not send."""
    is_raw = kind is LogKind.RAW
    selection = Selection(_EVENT_KINDS[kind], from_agent=is_raw)
    return Events(runs, selection, related="run__step__task__project", raw=is_raw)


def _outcomes(run: Run, task_id: int, kind: LogKind) -> dict[str, str]:
    """Return what became of the run's calls that wait or waited, by their ids, if the log shows calls."""
    if kind is not LogKind.REASONING or run.outcome != Outcome.ASKED:
        return {}
    return outcomes_of_waiting_calls(task_id, calls_and_results_at_end(Events(Q(run=run)), [run.pk]))


def _run_boundary(before: Run | None, after: Run | None, kind: LogKind) -> Iterator[str]:
    if kind is LogKind.RAW:
        return
    if before is not None:
        yield from _render_replies(before)
        yield _render_footer(Run.objects.get(pk=before.pk))
    if after is not None:
        yield _render_header(after, after.step)
        yield from _render_requests(after)


def raw_line(event: Event, *, run: int) -> str:
    """Return the agent's message of an event as one line of JSON; `run` is the number of its run."""
    entry = {"run": run, "seq": event.seq, "at": event.at.isoformat(), "kind": event.kind, "raw": event.raw}
    # A lone surrogate cannot be encoded, but JSON can escape it.
    return json.dumps(entry, ensure_ascii=False).encode(errors="backslashreplace").decode() + "\n"


def _render_header(run: Run, step: Step) -> str:
    task, settings = step.task, step.config
    if task.ask_before:  # the rules of the whole file hold in each step
        settings = {**settings, "askBefore": [*task.ask_before, *settings.get("askBefore", ())]}
    threshold = run.threshold
    if threshold is None:  # of a run from before it was stored
        threshold = task.threshold
    fields = {
        "Pipeline": task.pipeline,
        "Task": f"{task.title} ({task.project.name}/{task.slug})",
        "Step": f"{step.position} {step.name}",
        "Run": f"{run.number}, {run.reason_label}",
        "Model": run.model or "the agent's default",
        "Threshold": str(threshold),
        "Settings": json.dumps(settings, ensure_ascii=False, sort_keys=True),
        "Sandboxed": "yes" if run.sandboxed else "no",
        "Network": run.network,
        "Started": f"{format_time(run.started_at)} (all times are UTC)",
    }
    return f"{'=' * 72}\n{_format_fields(fields)}{'-' * 72}\n"


def _render_requests(run: Run) -> Iterator[str]:
    """Yield the requests for changes that the run was given, with the first comment of each thread."""
    for review in run.reviews_handed_in.select_related("author").prefetch_related("threads__comments"):
        lines = [f"{review.author.shown_name} requested changes", review.body]
        for thread in review.threads.all():
            place = f"{thread.place}: " if thread.place else ""
            lines += [f"{place}{comment.text}" for comment in list(thread.comments.all())[:1]]
        yield _render_remark("REVIEW", review.sent_at, lines)


def _render_replies(run: Run) -> Iterator[str]:
    """Yield what the run's agent replied in threads of reviews."""
    for reply in run.thread_comments.select_related("thread").order_by("at", "pk"):
        place = f" ({reply.thread.place})" if reply.thread.place else ""
        yield _render_remark("REPLY", reply.at, [f"In thread {reply.thread.number}{place}:", reply.text])


def _render_remark(kind: str, at: datetime | None, lines: list[str]) -> str:
    text = strip_controls("\n".join(filter(None, lines))).rstrip().replace("\n", "\n    ")
    if at:
        return f"[{format_time(at)}] [{kind}] {text}\n"
    return f"[{kind}] {text}\n"


def _render_footer(run: Run) -> str:
    kind_asked = ""
    if run.outcome == Outcome.ASKED and (asked := Question.objects.of_agents().filter(run=run).first()):
        kind_asked = asked.kind
    cost = dollars(run.cost_usd)
    if run.agent_reports_other_cost:
        cost += f" (the agent reported {dollars(run.reported_cost_usd or 0)})"
    ended, duration = "not yet", "not ended"
    if run.ended_at:
        ended, duration = format_time(run.ended_at), f"{run.seconds:.1f} s"
    usage = run.usage
    fields = {
        "Ended": ended,
        "Exit code": "none" if run.exit_code is None else str(run.exit_code),
        "Outcome": ending_of(run, kind_asked) or "none yet",
        "Error": run.error,
        "Duration": duration,
        "Tokens": f"{usage.input_tokens:,} in, {usage.output_tokens:,} out, "
        f"cache {usage.cache_write_tokens:,} written, {usage.cache_read_tokens:,} read",
        "Cost": cost,
    }
    return f"{'-' * 72}\n{_format_fields(fields)}\n"


def ending_of(run: Run, kind_asked: str) -> str:
    """Return how the run ended; "" if it has not. `kind_asked`: of the agent's question; "" without one."""
    if run.outcome != Outcome.ASKED:
        return str(run.get_outcome_display())
    return _ASKED.get(kind_asked, "its calls were set aside")


def _format_fields(fields: dict[str, str]) -> str:
    """Format the fields that have a value, one on a line."""
    return "".join(
        f"{name + ':':<12}{strip_controls(value).rstrip().replace(chr(10), chr(10) + ' ' * 12)}\n"
        for name, value in fields.items()
        if value
    )


def render_setup_log(task: Task) -> Iterator[str]:
    """Yield the commands of all setups of the task with their output, in order. Times are UTC."""
    if task.setup is None:
        yield "The project had no setup when this task was created.\n"
    for setup in task.setups.all():
        yield f"{'=' * 72}\nSetup {setup.number}, started {format_time(setup.started_at)}\n{'-' * 72}\n"
        for report in setup.reports:
            output = strip_controls(str(report["output"])).rstrip("\n")
            ended = report["problem"] or f"Succeeded in {report['seconds']:.1f} s."
            yield strip_controls(f"$ {report['command']}\n")
            if output:
                yield f"{output}\n"
            yield strip_controls(f"{ended}\n\n")
        yield _setup_footer(setup)


def _setup_footer(setup: Setup) -> str:
    if setup.ended_at is None:
        return strip_controls(f"$ {setup.current}\nNot ended yet.\n\n")
    ended = f"Ended {format_time(setup.ended_at)}, {SetupOutcome(setup.outcome).label}"
    if setup.problem and not any(one["problem"] for one in setup.reports):
        ended += f": {setup.problem}"
    return strip_controls(f"{ended}\n\n")

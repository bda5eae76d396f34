"""The spans of a task's trace (O3), derived from the rows that say what happened.

Nothing is stored when a span begins or ends. The ids are hashes of what the span shows, so each process on
each host finds the same ones, and a trace goes on over a halt, for weeks. Transitions are ordered by their
ids and not by their times: the clocks of hosts differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db.models import Prefetch

from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.trace_context import AttributeValue, TraceContext, TraceSpan
from tasks_app.models import Outcome, PublicationState, Question, Run, Step, Task, Transition

#: Outcomes that make a span's status an error.
_FAILED = frozenset(
    {
        Phase.FAILED,
        Outcome.FAILED,
        Outcome.CRASHED,
        Outcome.LOST,
        Outcome.UNDELIVERED,
        PublicationState.REFUSED,
    }
)
#: The phases in which a task or a step is worked on, or waits for people.
_WORKED_ON = (Phase.RUNNING, Phase.WAITING_FOR_INPUT)
#: The outcome of a wait whose answer was taken up.
_ANSWERED = "answered"


def context_of_task(task: Task) -> TraceContext:
    """Return the context of the first span of the task's trace."""
    return _context(task, "task 0")


def context_of_run(run: Run) -> TraceContext:
    return _context(run.step.task, f"run {run.pk}")


def _context(task: Task, span: str) -> TraceContext:
    # The random key tells apart tasks of two installations, and a task from a removed one with its id.
    return TraceContext.derive(f"{task.folder_key} {task.pk}", span)


def ended_spans(task_ids: Collection[int]) -> list[TraceSpan]:
    """Return all spans of these tasks that have ended."""
    runs = Run.objects.defer("prompt", "error", "by_model").order_by("pk")
    related = (
        Prefetch("transitions", Transition.objects.defer("reason").order_by("pk")),
        Prefetch("steps", Step.objects.defer("config", "plan")),
        Prefetch("steps__runs", runs),
        Prefetch("steps__questions", Question.objects.only("step", "kind", "asked_at", "answered_at")),
        "publications",
    )
    tasks = Task.objects.filter(pk__in=task_ids).select_related("project").prefetch_related(*related)
    return [span for task in tasks for span in _Trace(task).spans()]


class _Interval(NamedTuple):
    """The time from a transition to another one, after which the phase is `outcome`."""

    begin: Transition
    end: Transition | None

    @property
    def ended_at(self) -> datetime | None:
        return self.end.at if self.end else None

    @property
    def outcome(self) -> str:
        return self.end.target if self.end else ""


def _intervals(moves: Iterable[Transition], begin: Collection[str], end: Collection[str]) -> list[_Interval]:
    """Return the intervals that begin with a move to one phase and end with a move to another."""
    found: list[_Interval] = []
    first: Transition | None = None
    for move in moves:
        if first is None and move.target in begin:
            first = move
        elif first is not None and move.target in end:
            found.append(_Interval(first, move))
            first = None
    return [*found, _Interval(first, None)] if first else found


class _Trace:
    """The spans of one task, whose related rows are there."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._moves = list(task.transitions.all())
        self._tasks = _intervals((move for move in self._moves if move.step_id is None), _WORKED_ON, ENDED)

    def spans(self) -> Iterator[TraceSpan]:
        task = self._task
        sequence = {} if task.sequence_id is None else {"cat_herder.sequence.id": task.sequence_id}
        for number, interval in enumerate(self._tasks):
            yield from self._span(
                f"task {number}", "task", interval.begin.at, interval.ended_at,
                {
                    "cat_herder.task.outcome": interval.outcome,
                    "cat_herder.task.url": f"{settings.ENVIRONMENT.address}/tasks/{task.pk}/",
                    **sequence,
                },
                parent="task 0" if number else "", outcome=interval.outcome,
            )  # fmt: skip
        for step in task.steps.all():
            yield from self._of_step(step)
        for publication in task.publications.all():
            yield from self._span(
                f"publication {publication.pk}", "publish", publication.requested_at, publication.ended_at,
                {
                    "cat_herder.publish.outcome": publication.state,
                    "cat_herder.publish.pull_request": publication.pull_request,
                },
                parent="task 0", outcome=publication.state,
            )  # fmt: skip

    def _of_step(self, step: Step) -> Iterator[TraceSpan]:
        """Yield the spans of a step, of its waits for answers, and of its runs with their checks."""
        moves = [
            move
            for move in self._moves
            if move.step_id == step.pk or (move.step_id is None and move.target in ENDED)
        ]
        steps = _intervals(moves, _WORKED_ON, ENDED)
        for number, interval in enumerate(steps):
            task = _first(one.end is None or one.end.pk > interval.begin.pk for one in self._tasks)
            yield from self._span(
                f"step {step.pk} {number}", f"step {step.name}", interval.begin.at, interval.ended_at,
                {
                    "cat_herder.step.name": step.name,
                    "cat_herder.step.position": step.position,
                    "cat_herder.step.outcome": interval.outcome,
                },
                parent=f"task {task}", outcome=interval.outcome,
            )  # fmt: skip
        for wait in _intervals(moves, (Phase.WAITING_FOR_INPUT,), {Phase.RUNNING, *ENDED}):
            number = _first(one.end is None or one.end.pk > wait.begin.pk for one in steps)
            yield from self._of_wait(step, wait, parent=f"step {step.pk} {number}")
        runs = list(step.runs.all())
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            number = _first(one.end is None or one.end.at >= run.started_at for one in steps)
            yield from self._of_run(step, run, parent=f"step {step.pk} {number}")
            later = [move.at for move in moves] + ([following.started_at] if following else [])
            yield from self._of_checks(step, run, later, parent=f"step {step.pk} {number}")

    def _of_wait(self, step: Step, wait: _Interval, parent: str) -> Iterator[TraceSpan]:
        outcome = _ANSWERED if wait.outcome == Phase.RUNNING else wait.outcome
        questions = [
            one
            for one in step.questions.all()
            if wait.end and one.asked_at <= wait.end.at and (one.answered_at or wait.end.at) >= wait.begin.at
        ]
        return self._span(
            f"wait {wait.begin.pk}", "wait for answer", wait.begin.at, wait.ended_at,
            {
                "cat_herder.step.name": step.name,
                "cat_herder.wait.outcome": outcome,
                "cat_herder.wait.questions": len(questions),
                "cat_herder.wait.question_kinds": sorted({one.kind for one in questions}),
            },
            parent=parent, outcome=outcome,
            events=[("answered", one.answered_at) for one in questions if one.answered_at],
        )  # fmt: skip

    def _of_run(self, step: Step, run: Run, parent: str) -> Iterator[TraceSpan]:
        """Yield the span of a run. The gen_ai conventions count what was read from a cache as input, too."""
        read = run.input_tokens + run.cache_write_tokens + run.cache_read_tokens
        return self._span(
            f"run {run.pk}", "invoke_agent claude-code", run.started_at, run.ended_at,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": "anthropic",
                "gen_ai.agent.name": "claude-code",
                "gen_ai.conversation.id": str(run.session_id),
                **({"gen_ai.response.model": run.model} if run.model else {}),
                "gen_ai.usage.input_tokens": read,
                "gen_ai.usage.output_tokens": run.output_tokens,
                "gen_ai.usage.cache_creation.input_tokens": run.cache_write_tokens,
                "gen_ai.usage.cache_read.input_tokens": run.cache_read_tokens,
                "cat_herder.step.name": step.name,
                "cat_herder.run.number": run.number,
                "cat_herder.run.reason": run.reason,
                "cat_herder.run.outcome": run.outcome,
                "cat_herder.run.cost_usd": run.cost_usd,
                "cat_herder.run.sandboxed": run.sandboxed,
                "cat_herder.run.network": run.network,
            },
            parent=parent, outcome=run.outcome,
        )  # fmt: skip

    def _of_checks(self, step: Step, run: Run, later: Sequence[datetime], parent: str) -> Iterator[TraceSpan]:
        """Yield the span in which a run's work was recorded and judged, until the next of `later`."""
        if run.ended_at is None or run.checks is None:
            return
        ends = [at for at in later if at >= run.ended_at]
        passed = all(report["passed"] for report in run.checks)
        yield from self._span(
            f"checks {run.pk}", "checks", run.ended_at, min(ends, default=None),
            {
                "cat_herder.step.name": step.name,
                "cat_herder.run.number": run.number,
                "cat_herder.checks.passed": passed,
            },
            parent=parent, outcome="" if passed else Outcome.FAILED,
        )  # fmt: skip

    def _span(
        self,
        span: str,
        name: str,
        start: datetime,
        end: datetime | None,
        attributes: dict[str, AttributeValue],
        *,
        parent: str,
        outcome: str,
        events: Sequence[tuple[str, datetime]] = (),
    ) -> Iterator[TraceSpan]:
        """Yield a span of the task if it has ended. Each can be found by task, project and pipeline."""
        if end is None:
            return
        task, failed = self._task, outcome in _FAILED
        yield TraceSpan(
            context=_context(task, span),
            parent_id=_context(task, parent).span_id if parent else "",
            name=name,
            start=_nanoseconds(start),
            # A host whose clock is behind may end what another one began.
            end=_nanoseconds(max(start, end)),
            failed=failed,
            attributes={
                "cat_herder.task.id": task.pk,
                "cat_herder.project.name": task.project.name,
                "cat_herder.pipeline.name": task.pipeline,
                **attributes,
                **({"error.type": str(outcome)} if failed else {}),
            },
            events=[(event, _nanoseconds(at)) for event, at in events],
        )


def _first(matches: Iterable[bool]) -> int:
    """Return the number of the first interval that matches; 0 without any."""
    return next((number for number, matching in enumerate(matches) if matching), 0)


def _nanoseconds(at: datetime) -> int:
    """Return the time without the error of a float, which has no room for microseconds of today."""
    whole = at.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000_000 + at.microsecond * 1000

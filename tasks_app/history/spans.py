"""Begin and end the spans of a task's trace (O3), in the transaction that begins or ends what they show.

A task is traced once a process with an endpoint for traces works on it, and from then on by every process.
The spans are sent later, see `tasks_app.engine.traces.span_exporter`.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.trace_context import TraceContext, new_trace_id
from tasks_app.models import Question, QuestionKind, Run, Span, SpanKind, Step, Task

#: The outcome of a wait whose answer was taken up.
ANSWERED = "answered"


def _is_traced(task: Task) -> bool:
    return bool(task.traceparent or settings.ENVIRONMENT.traces_endpoint)


def begin_task(task: Task) -> Span | None:
    """Return the open span of the task, which begins now if there is none; None if it is not traced.

    The first one begins the trace. A task that goes on after its end gets another span below the first one.
    """
    if not _is_traced(task):
        return None
    if (span := task.spans.open().filter(kind=SpanKind.TASK).first()) is not None:
        return span
    task.refresh_from_db(fields=["traceparent"])
    first = TraceContext.parse(task.traceparent)
    span = Span.objects.create(
        task=task, kind=SpanKind.TASK, parent_id=first.span_id if first else "", started_at=timezone.now()
    )
    if first is None:
        task.traceparent = TraceContext(new_trace_id(), span.span_id).traceparent
        Task.objects.filter(pk=task.pk).update(traceparent=task.traceparent)
    return span


def begin_step(step: Step) -> Span | None:
    """Return the open span of the step, which begins now if there is none; None if it is not traced."""
    if (parent := begin_task(step.task)) is None:
        return None
    if (span := step.spans.open().filter(kind=SpanKind.STEP).first()) is not None:
        return span
    return _begin(step, SpanKind.STEP, parent)


def begin_run(run: Run) -> TraceContext | None:
    """Begin the span of a run, and end that of the wait for answers that the run takes up.

    Returns the context for its process; None if the task is not traced, or was cancelled in this moment.
    """
    step = run.step
    if not _is_traced(step.task):
        return None
    if not Task.objects.filter(pk=step.task_id, phase=Phase.RUNNING).exists():
        return None  # nobody would end spans that begin after the end of the task
    if (parent := begin_step(step)) is None:
        return None
    _end_wait(step, run.started_at)
    span = _begin(step, SpanKind.RUN, parent, run=run)
    return context_of(step.task, span)


def begin_wait(question: Question) -> None:
    """Begin to wait for the answer to the question, and to others that were asked together with it.

    No run is waiting if the portal itself asks about costs.
    """
    step = question.step
    if (parent := begin_step(step)) is not None:
        _end_wait(step, timezone.now())
        _begin(step, SpanKind.WAIT, parent, run=None if question.kind == QuestionKind.COST else question.run)


def _end_wait(step: Step, at: datetime) -> None:
    step.spans.open().filter(kind=SpanKind.WAIT).update(ended_at=at, outcome=ANSWERED)


def _begin(step: Step, kind: SpanKind, parent: Span, *, run: Run | None = None) -> Span:
    started = run.started_at if run is not None and kind is SpanKind.RUN else timezone.now()
    return Span.objects.create(
        task_id=step.task_id, step=step, run=run, kind=kind, parent_id=parent.span_id, started_at=started
    )


def end_spans(task_id: int, step_id: int | None, phase: Phase) -> None:
    """End the spans of a step that has ended, or all spans of a task. Runs end with their own rows."""
    spans = Span.objects.open().filter(task=task_id).exclude(kind=SpanKind.RUN)
    if step_id is not None:
        spans = spans.filter(step=step_id)
    spans.update(ended_at=timezone.now(), outcome=phase)


def context_of(task: Task, span: Span | None = None) -> TraceContext | None:
    """Return the context of a span of the task, or that of its first span; None if it is not traced."""
    first = TraceContext.parse(task.traceparent)
    if first is None or span is None:
        return first
    return TraceContext(first.trace_id, span.span_id)

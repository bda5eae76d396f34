"""Sending spans over OTLP/HTTP with OpenTelemetry's SDK.

Only imported when an endpoint for traces is set, because it takes time and memory. The SDK reads its other
variables itself (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_SERVICE_NAME` …).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from tasks_app.core.hops import HopName
from tasks_app.core.phases import Phase
from tasks_app.core.trace_context import TraceContext
from tasks_app.core.version import version
from tasks_app.engine.traces.hops import hops_of, questions_of
from tasks_app.models import Outcome, QuestionKind, Run, Span, SpanKind, Step, Task

if TYPE_CHECKING:
    from tasks_app.agent.proxy.spans import AgentSpan

Attributes = dict[str, AttributeValue]

#: Outcomes that make a span's status an error.
_FAILED = frozenset({Phase.FAILED, Outcome.FAILED, Outcome.CRASHED, Outcome.LOST})
#: The service that spans of agents' programs belong to.
AGENT_SERVICE = "claude-code"


class SpanSender:
    """Sends spans, with the ids and times of their rows, in the calling thread."""

    def __init__(self) -> None:
        self._ids = _StoredIds()
        self._built = _Collector()
        own = Resource.create({"service.name": "cat-herder", "service.version": version()})
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=own.merge(OTELResourceDetector().detect()),  # the operator's variables come first
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._built)
        self._tracer = provider.get_tracer("cat_herder", version())
        self._agent_resource = Resource.create({"service.name": AGENT_SERVICE})
        self._session = _NotingSession()
        self._exporter = OTLPSpanExporter(settings.ENVIRONMENT.traces_endpoint, session=self._session)

    def send(self, spans: Sequence[Span]) -> str:
        """Send the spans. Return "" if the endpoint has taken them, otherwise the reason in words."""
        return self._export([self._build(span) for span in spans])

    def send_agent_spans(self, spans: Sequence[AgentSpan]) -> str:
        """Send spans of agents' programs, as a service of their own. Returns the same as `send`."""
        return self._export([_agent_span(span, self._agent_resource) for span in spans])

    def _export(self, built: Sequence[ReadableSpan]) -> str:
        self._session.problem = ""
        result = self._exporter.export(built)
        if result is SpanExportResult.SUCCESS and not self._session.problem:
            return ""
        return self._session.problem or "the spans cannot be encoded"

    def _build(self, row: Span) -> ReadableSpan:
        context = TraceContext.parse(row.task.traceparent)
        if context is None or row.ended_at is None:
            raise ValueError(f"{row} has no trace or has not ended")
        self._ids.next_span, self._ids.trace = int(row.span_id, 16), int(context.trace_id, 16)
        span = self._tracer.start_span(
            _NAMES[row.kind](row),
            context=_parent(context.trace_id, row.parent_id),
            attributes={**_of_task(row.task), **_ATTRIBUTES[row.kind](row)},
            start_time=_nanoseconds(row.started_at),
        )
        hops = hops_of(row)
        for name, at in hops:
            span.add_event(name, timestamp=_nanoseconds(at))
        if row.outcome in _FAILED:
            span.set_attribute("error.type", row.outcome)
            span.set_status(Status(StatusCode.ERROR))
        # A halted run has ended when its question is stored; its agent exits a moment later.
        exits = [at for name, at in hops if name == HopName.AGENT_EXITED]
        # A host whose clock is behind may end what another one began.
        span.end(_nanoseconds(max(row.started_at, row.ended_at, *exits)))
        return self._built.take()


class _StoredIds(IdGenerator):
    """Gives the span that is built next the ids of its row."""

    next_span = trace = 0

    def generate_span_id(self) -> int:
        return self.next_span

    def generate_trace_id(self) -> int:
        return self.trace


class _Collector(SpanProcessor):
    """Keeps the span that was built last."""

    def __init__(self) -> None:
        self._span: ReadableSpan | None = None

    def on_end(self, span: ReadableSpan) -> None:
        self._span = span

    def take(self) -> ReadableSpan:
        if self._span is None:
            raise ValueError("no span was built")
        taken, self._span = self._span, None
        return taken


class _NotingSession(requests.Session):
    """Keeps in words what is wrong with the last answer; the exporter only logs it, at each attempt."""

    problem = ""

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        try:
            response = super().request(*arguments, **options)
        except requests.Timeout:
            self.problem = "it does not answer in time"
            raise
        except requests.exceptions.SSLError:
            self.problem = "its certificate is not valid"
            raise
        except requests.RequestException as error:
            self.problem = f"it cannot be reached ({type(error).__name__})"
            raise
        # The exporter would take a redirect, which it does not follow, for success.
        self.problem = (
            "" if response.ok and response.status_code < 300 else f"it answers {response.status_code}"
        )
        return response


def _agent_span(span: AgentSpan, resource: Resource) -> ReadableSpan:
    trace_id, flags = int(span.context.trace_id, 16), TraceFlags(TraceFlags.SAMPLED)
    return ReadableSpan(
        span.name,
        context=SpanContext(trace_id, int(span.context.span_id, 16), is_remote=False, trace_flags=flags),
        parent=SpanContext(trace_id, int(span.parent_id, 16), is_remote=True, trace_flags=flags),
        resource=resource,
        attributes=span.attributes,
        status=Status(StatusCode.ERROR) if span.failed else Status(),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=InstrumentationScope(AGENT_SERVICE),
    )


def endpoint_problem(seconds: float) -> str:
    """Send a request without spans. Return "" if the endpoint takes it, otherwise the reason in words."""
    session = _NotingSession()
    OTLPSpanExporter(settings.ENVIRONMENT.traces_endpoint, session=session, timeout=seconds).export([])
    return session.problem


def shown_endpoint() -> str:
    """Return the endpoint without a user, a password or a query, for logs and people."""
    parts = urlsplit(settings.ENVIRONMENT.traces_endpoint)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _parent(trace_id: str, parent_id: str) -> Context:
    """Return the context of a span whose parent is given by its id; of a first span, if it is empty."""
    if not parent_id:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(int(trace_id, 16), int(parent_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _nanoseconds(at: datetime) -> int:
    """Return the time without the error of a float, which has no room for microseconds of today."""
    whole = at.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000_000 + at.microsecond * 1000


def _of_task(task: Task) -> Attributes:
    """Return what every span has, so that each can be found by task, project and pipeline."""
    return {
        "cat_herder.task.id": task.pk,
        "cat_herder.project.name": task.project.name,
        "cat_herder.pipeline.name": task.pipeline,
    }


def _task_attributes(row: Span) -> Attributes:
    sequence = {} if row.task.sequence_id is None else {"cat_herder.sequence.id": row.task.sequence_id}
    return {
        "cat_herder.task.outcome": row.outcome,
        "cat_herder.task.url": f"{settings.ENVIRONMENT.address}/tasks/{row.task_id}/",
        **sequence,
    }


def _step_attributes(row: Span) -> Attributes:
    step = _step(row)
    return {
        "cat_herder.step.name": step.name,
        "cat_herder.step.position": step.position,
        "cat_herder.step.outcome": row.outcome,
    }


def _run_attributes(row: Span) -> Attributes:
    """Return what a run used. The gen_ai conventions count what was read from a cache as input, too."""
    run = _run_of(row)
    model: Attributes = {"gen_ai.response.model": run.model} if run.model else {}
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.agent.name": "claude-code",
        "gen_ai.conversation.id": str(run.session_id),
        **model,
        "gen_ai.usage.input_tokens": run.input_tokens + run.cache_write_tokens + run.cache_read_tokens,
        "gen_ai.usage.output_tokens": run.output_tokens,
        "gen_ai.usage.cache_creation.input_tokens": run.cache_write_tokens,
        "gen_ai.usage.cache_read.input_tokens": run.cache_read_tokens,
        "cat_herder.step.name": _step(row).name,
        "cat_herder.run.number": run.number,
        "cat_herder.run.reason": run.reason,
        "cat_herder.run.outcome": row.outcome,
        "cat_herder.run.cost_usd": run.cost_usd,
        "cat_herder.run.sandboxed": run.sandboxed,
        "cat_herder.run.network": run.network,
    }


def _wait_attributes(row: Span) -> Attributes:
    step: Attributes = {"cat_herder.step.name": _step(row).name, "cat_herder.wait.outcome": row.outcome}
    if row.run is None:  # the portal itself has asked
        return {
            **step,
            "cat_herder.wait.questions": 1,
            "cat_herder.wait.question_kinds": [QuestionKind.COST.value],
        }
    questions = questions_of(row.run)
    return {
        **step,
        "cat_herder.run.number": row.run.number,
        "cat_herder.wait.questions": len(questions),
        "cat_herder.wait.question_kinds": sorted({question.kind for question in questions}),
    }


def _step(row: Span) -> Step:
    if row.step is None:
        raise ValueError(f"{row} has no step")
    return row.step


def _run_of(row: Span) -> Run:
    if row.run is None:
        raise ValueError(f"{row} has no run")
    return row.run


_NAMES: Mapping[str, Callable[[Span], str]] = {
    SpanKind.TASK: lambda row: "task",
    SpanKind.STEP: lambda row: f"step {_step(row).name}",
    SpanKind.RUN: lambda row: "invoke_agent claude-code",
    SpanKind.WAIT: lambda row: "wait for answer",
}
_ATTRIBUTES: Mapping[str, Callable[[Span], Attributes]] = {
    SpanKind.TASK: _task_attributes,
    SpanKind.STEP: _step_attributes,
    SpanKind.RUN: _run_attributes,
    SpanKind.WAIT: _wait_attributes,
}

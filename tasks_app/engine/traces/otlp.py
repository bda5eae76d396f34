"""Sending spans over OTLP/HTTP with OpenTelemetry's SDK.

Only imported when an endpoint for traces is set, because it takes time and memory. The SDK reads its other
variables itself (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_SERVICE_NAME` …).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from tasks_app.core.trace_context import TraceSpan
from tasks_app.core.version import version

#: The service that spans of agents' programs belong to.
AGENT_SERVICE = "claude-code"


class SpanSender:
    """Sends spans in the calling thread."""

    def __init__(self) -> None:
        own = Resource.create({"service.name": "cat-herder", "service.version": version()})
        self._resource = own.merge(OTELResourceDetector().detect())  # the operator's variables come first
        self._agent_resource = Resource.create({"service.name": AGENT_SERVICE})
        self._session = _NotingSession()
        self._exporter = OTLPSpanExporter(settings.ENVIRONMENT.traces_endpoint, session=self._session)

    def send(self, spans: Sequence[TraceSpan]) -> str:
        """Send spans of tasks. Return "" if the endpoint has taken them, otherwise the reason in words."""
        return self._export(spans, self._resource, InstrumentationScope("cat_herder", version()))

    def send_agent_spans(self, spans: Sequence[TraceSpan]) -> str:
        """Send spans of agents' programs, as a service of their own. Returns the same as `send`."""
        return self._export(spans, self._agent_resource, InstrumentationScope(AGENT_SERVICE))

    def _export(self, spans: Sequence[TraceSpan], resource: Resource, scope: InstrumentationScope) -> str:
        self._session.problem = ""
        result = self._exporter.export([_built(span, resource, scope) for span in spans])
        if result is SpanExportResult.SUCCESS and not self._session.problem:
            return ""
        return self._session.problem or "the spans cannot be encoded"


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


def _built(span: TraceSpan, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    trace_id, flags = int(span.context.trace_id, 16), TraceFlags(TraceFlags.SAMPLED)
    parent = None
    if span.parent_id:
        parent = SpanContext(trace_id, int(span.parent_id, 16), is_remote=True, trace_flags=flags)
    return ReadableSpan(
        span.name,
        context=SpanContext(trace_id, int(span.context.span_id, 16), is_remote=False, trace_flags=flags),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[Event(name, timestamp=at) for name, at in span.events],
        status=Status(StatusCode.ERROR) if span.failed else Status(),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=scope,
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

"""The spans that an agent's program sends, and what of them may leave the sandbox (O3).

Only imported if they are taken, because protobuf takes time and memory.

Claude Code 2.1.329 continues `TRACEPARENT`: a process has `claude_code.interaction` below the span of its
run, and in it `llm_request` and `tool`, which contains the wait for its permission and its execution. A
deferred call has no span in the process that asked; in the one that goes on, it is below the interaction
that asked. Spans are sent every 5 s and at the exit. After a 503 it tries again, which delays the exit;
after a 400 it does not.

Its spans have texts: errors in words, the first word of a command, and if a variable says so prompts,
commands and outputs. An agent could also send whatever it likes. So a span is rebuilt from what is listed
here.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tasks_app.agent.proxy.meter import Refused
from tasks_app.core.trace_context import TraceContext, TraceSpan

#: What one run may send in all.
MOST_BYTES = 16 * 1024 * 1024
MOST_SPANS = 10_000
#: Resources and scopes of a request, and attributes of a span, that are looked at. An exporter sends one, one
#: and 30. Half a million empty ones would keep the proxy busy for half a second.
MOST_GROUPS = 16
MOST_ATTRIBUTES = 128
#: How far, in nanoseconds, a span may lie outside the time of its run: clocks are set.
TOLERANCE = 60 * 1_000_000_000

OTHER_NAME = "claude_code.other"
NAMES = frozenset(
    f"claude_code.{name}"
    for name in (
        "interaction",
        "llm_request",
        "tool",
        "tool.blocked_on_user",
        "tool.execution",
        "hook",
        "subagent.spawn",
        "compaction",
        "bash.subprocess",
        "mcp.rpc",
    )
)
#: Attributes that are numbers.
FIGURES = frozenset(
    {
        "duration_ms",
        "interaction.duration_ms",
        "interaction.sequence",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_creation_tokens",
        "result_tokens",
        "ttft_ms",
        "first_content_ms",
        "attempt",
        "status_code",
        "num_hooks",
        "num_success",
        "num_blocking",
        "num_non_blocking_error",
        "num_cancelled",
    }
)
FLAGS = frozenset({"success", "response.has_tool_call"})
#: Attributes that are one word: of a fixed list, an id, or the name of a model or tool.
WORDS = frozenset(
    {
        "span.type",
        "model",
        "speed",
        "effort",
        "stop_reason",
        "llm_request.context",
        "query_source_safe",
        "request_id",
        "tool_name",
        "tool_use_id",
        "agent_id",
        "parent_agent_id",
        "decision",
        "source",
        "error.type",
        "error_class",
        "gen_ai.system",
        "gen_ai.provider.name",
        "gen_ai.operation.name",
        "gen_ai.request.model",
        "gen_ai.conversation.id",
        "gen_ai.response.id",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
    }
)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\[\]-]{0,63}")

Value = str | int | float | bool


class RunSpans:
    """Takes the spans that one run sends to the proxy, and passes on the run's own.

    `context` is that of the run. `keep` gets what is passed on, in the thread of the proxy: it must not wait.
    """

    def __init__(self, context: TraceContext, keep: Callable[[Sequence[TraceSpan]], None]) -> None:
        self._context = context
        self._keep = keep
        self._earliest = time.time_ns() - TOLERANCE
        self._bytes = 0
        self._spans = 0

    def charge(self, size: int) -> None:
        """Count received bytes. Raises Refused if the run has sent all that it may."""
        self._bytes += size
        if self._bytes > MOST_BYTES or self._spans >= MOST_SPANS:
            raise Refused(413, "request_too_large", "This run has sent all the spans that it may send.")

    def take(self, body: bytes) -> bytes:
        """Pass on the spans of a request that may leave the sandbox, and return the body of the response.

        Raises Refused.
        """
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except DecodeError as error:
            message = "These are no spans in the format of OTLP as http/protobuf."
            raise Refused(400, "invalid_request_error", message) from error
        resources = islice(request.resource_spans, MOST_GROUPS)
        scopes = [scope for resource in resources for scope in islice(resource.scope_spans, MOST_GROUPS)]
        sent = sum(len(scope.spans) for scope in scopes)
        left = max(MOST_SPANS - self._spans, 0)
        self._spans += sent
        spans = islice(chain.from_iterable(scope.spans for scope in scopes), left)
        kept = [rebuilt for span in spans if (rebuilt := self._rebuild(span)) is not None]
        if kept:
            self._keep(kept)
        return _response(sent - len(kept))

    def _rebuild(self, span: Span) -> TraceSpan | None:
        """Return what may leave the sandbox of this span, or None if it is not one of the run."""
        own = self._context
        parent_id = span.parent_span_id.hex() if any(span.parent_span_id) else own.span_id
        context = TraceContext(span.trace_id.hex(), span.span_id.hex())
        has_ids = len(context.span_id) == len(parent_id) == 16 and any(span.span_id)
        if not has_ids or context.trace_id != own.trace_id or context.span_id in (own.span_id, parent_id):
            return None
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        if not self._earliest <= start <= end <= time.time_ns() + TOLERANCE:
            return None
        return TraceSpan(
            context=context,
            parent_id=parent_id,
            name=span.name if span.name in NAMES else OTHER_NAME,
            start=start,
            end=end,
            failed=span.status.code == Status.STATUS_CODE_ERROR,
            attributes=dict(_listed(span.attributes)),
        )


def _listed(attributes: Iterable[KeyValue]) -> Iterator[tuple[str, Value]]:
    """Yield the attributes whose keys are listed and whose values are of the kind that belongs to the key."""
    for attribute in islice(attributes, MOST_ATTRIBUTES):
        key, value = attribute.key, _value(attribute.value)
        is_figure = type(value) is int or (type(value) is float and math.isfinite(value))
        is_word = isinstance(value, str) and _WORD.fullmatch(value) is not None
        fits = (key in FIGURES and is_figure) or (key in WORDS and is_word)
        if value is not None and (fits or (key in FLAGS and isinstance(value, bool))):
            yield key, value


def _value(value: AnyValue) -> Value | None:
    """Return a value that is one text, number or truth value."""
    kind = value.WhichOneof("value")
    if kind not in ("string_value", "int_value", "double_value", "bool_value"):
        return None
    found: Value = getattr(value, kind)
    return found


def _response(refused: int) -> bytes:
    response = ExportTraceServiceResponse()
    if refused:
        response.partial_success.rejected_spans = refused
        response.partial_success.error_message = "Only spans of the run's own trace are taken, up to a limit."
    body: bytes = response.SerializeToString()
    return body

"""What of an agent's spans may leave the sandbox (O3): names and figures of its own trace, no texts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tasks_app.agent.proxy import spans as run_spans
from tasks_app.agent.proxy.meter import Refused
from tasks_app.agent.proxy.spans import RunSpans, Value
from tasks_app.core.trace_context import TraceContext, TraceSpan

CONTEXT = TraceContext("ab" * 16, "cd" * 8)


class Taken(RunSpans):
    """A run whose kept spans are in `kept`."""

    def __init__(self) -> None:
        self.kept: list[TraceSpan] = []
        super().__init__(CONTEXT, self.kept.extend)

    def send(self, *spans: Span, **resource: str) -> int:
        """Send a request with these spans. Return how many of them were refused."""
        answer = ExportTraceServiceResponse.FromString(self.take(request(*spans, **resource)))
        return int(answer.partial_success.rejected_spans)


@pytest.fixture
def run() -> Taken:
    return Taken()


def request(*spans: Span, **resource: str) -> bytes:
    sent = ExportTraceServiceRequest()
    of_resource = sent.resource_spans.add()
    for key, value in resource.items():
        of_resource.resource.attributes.add(key=key).value.string_value = value
    of_resource.scope_spans.add().spans.extend(spans)
    body: bytes = sent.SerializeToString()
    return body


def span(name: str = "claude_code.tool", *, attributes: dict[str, Any] | None = None, **fields: Any) -> Span:
    now = time.time_ns()
    usual = {
        "trace_id": bytes.fromhex(CONTEXT.trace_id),
        "span_id": b"\1" * 8,
        "parent_span_id": bytes.fromhex(CONTEXT.span_id),
        "start_time_unix_nano": now,
        "end_time_unix_nano": now + 5_000_000,
    }
    made = Span(name=name, **{**usual, **fields})
    for key, value in (attributes or {}).items():
        kind = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}[type(value)]
        setattr(made.attributes.add(key=key).value, kind, value)
    return made


def test_a_span_of_the_run_keeps_its_place_times_and_figures(run: Taken) -> None:
    attributes: dict[str, Value] = {
        "duration_ms": 5,
        "success": True,
        "tool_name": "Bash",
        "model": "claude-opus-5-5[1m]",
    }
    sent = span(attributes=attributes, status={"code": 2})
    assert run.send(sent) == 0
    assert run.kept == [
        TraceSpan(
            context=TraceContext(CONTEXT.trace_id, "01" * 8),
            parent_id=CONTEXT.span_id,
            name="claude_code.tool",
            start=sent.start_time_unix_nano,
            end=sent.end_time_unix_nano,
            failed=True,
            attributes=attributes,
        )
    ]
    assert run.take(request(span(span_id=b"\2" * 8))) == b"", "the empty response means success"


TEXTS = {
    "user_prompt": "Paint it ultramarine",
    "error": "No file paint.txt",
    "bash_argv0": "paint",
    "user.id": "e0538c36a73c8ea0ede4de48cc7d1215",
    "user.email": "ann@example.org",
    "file_path": "paint.txt",
    "full_command": "cat paint.txt",
    "tool_input": "{}",
    "gen_ai.response.text": "ultramarine",
}


def test_attributes_that_are_not_listed_are_dropped(run: Taken) -> None:
    run.send(span(attributes={**TEXTS, "duration_ms": 5}))
    assert run.kept[0].attributes == {"duration_ms": 5}


@pytest.mark.parametrize(
    "value",
    ["two words", "ann@example.org", "src/paint.txt", "a\nb", "", "x" * 65, "ünlich", "{}", 1, True, 0.5],
)
def test_a_listed_word_is_dropped_if_it_is_no_word(run: Taken, value: object) -> None:
    run.send(span(attributes={"tool_name": value}))
    assert run.kept[0].attributes == {}


@pytest.mark.parametrize("value", ["5", True, float("nan"), float("inf")])
def test_a_listed_figure_is_dropped_if_it_is_no_number(run: Taken, value: object) -> None:
    run.send(span(attributes={"duration_ms": value}))
    assert run.kept[0].attributes == {}


def test_values_of_other_kinds_are_dropped(run: Taken) -> None:
    sent = span()
    sent.attributes.add(key="tool_name").value.bytes_value = b"Bash"
    sent.attributes.add(key="model").value.array_value.values.add().string_value = "opus"
    sent.attributes.add(key="duration_ms")
    run.send(sent)
    assert run.kept[0].attributes == {}


def test_nothing_else_of_a_span_is_kept(run: Taken) -> None:
    """Events, links, the trace state, the status' message, the resource and the scope."""
    sent = span(trace_state="secret=1", status={"code": 2, "message": "secret"}, kind=3)
    sent.events.add(name="secret").attributes.add(key="tool_name").value.string_value = "secret"
    sent.links.add(trace_id=b"\7" * 16, span_id=b"\7" * 8, trace_state="secret=1")
    run.take(request(sent, **{"service.name": "secret", "host.name": "secret"}))
    assert run.kept[0].failed and "secret" not in repr(run.kept)


def test_a_name_that_is_not_known_is_replaced(run: Taken) -> None:
    run.send(span("Paint it ultramarine"))
    assert [kept.name for kept in run.kept] == ["claude_code.other"]


@pytest.mark.parametrize(
    "fields",
    [
        {"trace_id": b"\7" * 16},
        {"trace_id": b""},
        {"span_id": b""},
        {"span_id": b"\0" * 8},
        {"span_id": b"\1" * 9},
        {"span_id": bytes.fromhex(CONTEXT.span_id)},
        {"parent_span_id": b"\1" * 8},
        {"parent_span_id": b"\2" * 7},
        {"start_time_unix_nano": 1},
        {"end_time_unix_nano": 1},
        {"end_time_unix_nano": 2**63},
    ],
    ids=[
        "another trace", "no trace", "no id", "a zero id", "a long id", "the portal's own span",
        "its own parent", "a short parent", "before the run", "an end before its start", "in the future",
    ],
)  # fmt: skip
def test_a_span_that_is_not_of_the_run_is_refused(run: Taken, fields: dict[str, Any]) -> None:
    assert run.send(span(**fields), span(span_id=b"\2" * 8)) == 1
    assert [kept.context.span_id for kept in run.kept] == ["02" * 8]


@pytest.mark.parametrize("parent", [b"", b"\0" * 8])
def test_a_span_without_a_parent_is_put_below_the_run(run: Taken, parent: bytes) -> None:
    """Otherwise the trace would have two beginnings."""
    run.send(span(parent_span_id=parent))
    assert run.kept[0].parent_id == CONTEXT.span_id


def test_a_run_may_send_so_many_spans_and_no_more(run: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_spans, "MOST_SPANS", 3)
    spans = [span(span_id=bytes([number]) * 8) for number in (1, 2, 3, 4)]
    run.charge(1)
    assert run.send(*spans[:2]) == 0
    run.charge(1)
    assert run.send(*spans[2:]) == 1
    assert len(run.kept) == 3
    with pytest.raises(Refused, match="all the spans") as refusal:
        run.charge(1)
    assert refusal.value.status == 413


def test_refused_spans_count_too(run: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_spans, "MOST_SPANS", 1)
    assert run.send(span(trace_id=b"\7" * 16)) == 1
    with pytest.raises(Refused):
        run.charge(1)


def test_a_run_may_send_so_many_bytes_and_no_more(run: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_spans, "MOST_BYTES", 10)
    run.charge(10)
    with pytest.raises(Refused, match="all the spans"):
        run.charge(1)


@pytest.mark.parametrize("body", [b'{"resourceSpans": []}', b"\xff\xff", request(Span())[:-1]])
def test_what_is_no_protobuf_is_refused(run: Taken, body: bytes) -> None:
    with pytest.raises(Refused, match="http/protobuf") as refusal:
        run.take(body)
    assert refusal.value.status == 400 and run.kept == []


def test_a_request_of_many_empty_parts_is_not_counted_through(run: Taken) -> None:
    sent = ExportTraceServiceRequest()
    for number in range(1, run_spans.MOST_GROUPS + 2):
        sent.resource_spans.add().scope_spans.add().spans.append(span(span_id=bytes([number]) * 8))
    run.take(sent.SerializeToString())
    assert len(run.kept) == run_spans.MOST_GROUPS
    many = span(attributes={f"x{number}": 1 for number in range(run_spans.MOST_ATTRIBUTES)} | {"attempt": 1})
    run.send(many)
    assert run.kept[-1].attributes == {}


def test_a_request_without_spans_is_taken(run: Taken) -> None:
    """So an exporter tries whether somebody listens."""
    assert run.take(b"") == b"" and run.kept == []

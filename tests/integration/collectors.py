"""A collector of spans on loopback: a real OTLP/HTTP endpoint that decodes what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.integration.receivers import Receiver, receiving


@dataclass(frozen=True)
class Received:
    """One span as it came over the wire."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[tuple[str, int]]


@dataclass
class Collector:
    receiver: Receiver

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.receiver.port}"

    def spans(self) -> list[Received]:
        """Return every span that came, in order; one that came twice is there twice."""
        return [span for _, _, body in list(self.receiver.posts) for span in _decoded(body)]

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans() if span.name == name]


@contextmanager
def collecting(*, status: int = 200) -> Iterator[Collector]:
    with receiving(status=status) as receiver:
        yield Collector(receiver)


def _decoded(body: bytes) -> Iterator[Received]:
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield Received(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    kind=span.kind,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    failed=span.status.code == 2,
                    attributes=_values(span.attributes),
                    resource=resource,
                    events=[(event.name, event.time_unix_nano) for event in span.events],
                )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)

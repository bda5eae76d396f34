"""Spans of agents' programs (O3): taken by the API key proxy, sent to the endpoint in the task's trace."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tasks_app import composition
from tasks_app.agent.connection import Connection
from tasks_app.agent.port import RunOrder, RunPaths
from tasks_app.agent.proxy import ApiKeyProxy, connections, server
from tasks_app.agent.proxy import spans as run_spans
from tasks_app.agent.proxy.server import SPANS_BYTES
from tasks_app.agent.proxy.spans import RunSpans
from tasks_app.core.phases import Phase
from tasks_app.core.trace_context import TraceContext, TraceSpan
from tasks_app.engine.traces import agent_spans
from tasks_app.engine.traces.agent_spans import WaitingSpans
from tasks_app.engine.traces.otlp import SpanSender
from tasks_app.engine.traces.span_exporter import SpanExporter, send_ended
from tasks_app.engine.traces.spans import context_of_task
from tasks_app.models import Question, Task, paths
from tasks_app.operations.doctor import services
from tests.installation import Installation
from tests.integration.collectors import Collector, Received
from tests.runner import Runner, file_in
from tests.unit.test_agent_spans import CONTEXT, request, span

NETWORK = """\
network: {network}
pipelines:
  default:
    - {{name: do, command: self}}
"""


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> WaitingSpans:
    """The spans that wait in this process; none of other tests."""
    spans = WaitingSpans()
    monkeypatch.setattr(composition, "WAITING", spans)
    monkeypatch.setattr("tasks_app.engine.traces.span_exporter.WAITING", spans)
    return spans


def traced(settings: Any, url: str, **more: Any) -> None:
    changed = {"otlp_endpoint": url, "agent_spans": "yes", **more}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=changed)


class TestProxy:
    """What `POST /v1/traces` answers. The model behind it is never reached."""

    @pytest.fixture
    def proxy(self) -> Iterator[ApiKeyProxy]:
        running = ApiKeyProxy(api_key="sk-real", upstream="http://127.0.0.1:9")
        running.start()
        yield running
        running.stop()

    @pytest.fixture
    def kept(self) -> list[TraceSpan]:
        return []

    @pytest.fixture
    def token(self, proxy: ApiKeyProxy, kept: list[TraceSpan]) -> Iterator[str]:
        with proxy.run_token(spans=RunSpans(CONTEXT, kept.extend)) as (token, _):
            yield token

    def post(self, proxy: ApiKeyProxy, token: str, body: bytes, **headers: str) -> tuple[int, str]:
        """Return the status, and the message of an error."""
        connection = HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
        sent = {"x-cat-herder-run": token, "content-type": "application/x-protobuf"}
        connection.request("POST", "/v1/traces", body, {**sent, **headers})
        with connection.getresponse() as response:
            answer = response.read()
        connection.close()
        return response.status, json.loads(answer)["error"]["message"] if response.status != 200 else ""

    def test_o3_a_traced_run_may_send_spans(
        self, proxy: ApiKeyProxy, token: str, kept: list[TraceSpan]
    ) -> None:
        assert self.post(proxy, token, request(span())) == (200, "")
        assert [one.name for one in kept] == ["claude_code.tool"]

    def test_o3_another_run_may_not(self, proxy: ApiKeyProxy) -> None:
        with proxy.run_token() as (token, _):
            refused = (403, "Refused by the portal: Agents may not use /v1/traces.")
            assert self.post(proxy, token, request(span())) == refused

    def test_o3_nobody_sends_spans_without_the_token_of_a_run(
        self, proxy: ApiKeyProxy, token: str, kept: list[TraceSpan]
    ) -> None:
        for shown in ("", "sk-real", f"{token}x"):
            status, message = self.post(proxy, shown, request(span()))
            assert status == 401 and "run token" in message
        assert kept == []

    def test_o3_the_token_of_a_run_that_has_ended_is_refused(self, proxy: ApiKeyProxy) -> None:
        with proxy.run_token(spans=RunSpans(CONTEXT, lambda spans: None)) as (token, _):
            pass
        assert self.post(proxy, token, request(span()))[0] == 401

    @pytest.mark.parametrize(
        ("body", "headers", "status", "said"),
        [
            (b"no protobuf", {}, 400, "http/protobuf"),
            # It is refused for the length that it announces; nobody reads the body, so none is sent.
            (b"", {"content-length": str(SPANS_BYTES + 1)}, 413, "too large"),
            (b"", {"content-encoding": "gzip"}, 415, "compressed"),
        ],
        ids=["garbage", "too large", "compressed"],
    )
    def test_o3_a_bad_request_is_refused_and_the_next_one_taken(
        self,
        proxy: ApiKeyProxy,
        token: str,
        kept: list[TraceSpan],
        body: bytes,
        headers: dict[str, str],
        status: int,
        said: str,
    ) -> None:
        refused = self.post(proxy, token, body, **headers)
        assert refused[0] == status and said in refused[1]
        assert self.post(proxy, token, request(span())) == (200, "") and len(kept) == 1

    def test_o3_a_body_that_does_not_say_how_long_it_is_is_read_up_to_the_limit(
        self, proxy: ApiKeyProxy, token: str
    ) -> None:
        address = ("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        piece = b"10000\r\n" + b"\0" * 65_536 + b"\r\n"
        with socket.create_connection(address, timeout=20) as client:
            head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\n"
            client.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode() + 16 * piece)
            client.sendall(b"1\r\n\0\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 413 ")

    def test_o3_a_run_that_has_sent_its_share_is_refused(
        self, proxy: ApiKeyProxy, token: str, monkeypatch: pytest.MonkeyPatch, kept: list[TraceSpan]
    ) -> None:
        monkeypatch.setattr(run_spans, "MOST_SPANS", 1)
        assert self.post(proxy, token, request(span())) == (200, "")
        status, message = self.post(proxy, token, request(span()))
        assert status == 413 and "all the spans" in message and len(kept) == 1

    def test_m7_one_run_that_keeps_requests_open_cuts_no_other_run_off(
        self, proxy: ApiKeyProxy, token: str, monkeypatch: pytest.MonkeyPatch, kept: list[TraceSpan]
    ) -> None:
        """As many requests as the proxy has connections, each with a body that drips."""
        monkeypatch.setattr(connections, "CONNECTIONS", 12)
        monkeypatch.setattr(server, "SPANS_SECONDS", 1)
        address = ("127.0.0.1", int(proxy.url.rpartition(":")[2]))
        head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: 1000\r\n\r\n"
        with contextlib.ExitStack() as opened, proxy.run_token(spans=RunSpans(CONTEXT, kept.extend)) as other:
            clients: list[socket.socket] = []
            for _ in range(3 * connections.CONNECTIONS):
                clients.append(opened.enter_context(socket.create_connection(address, timeout=20)))
                clients[-1].sendall(head.encode())
                with contextlib.suppress(OSError):
                    clients[0].sendall(b"x")
                assert self.post(proxy, other[0], request(span())) == (200, "")
            said = [client.recv(13) for client in clients]
        assert said[0] == b"HTTP/1.1 408 " and set(said) == {b"HTTP/1.1 408 ", b"HTTP/1.1 400 "}


class TestConnection:
    def test_o3_the_program_is_told_where_to_send_spans(self) -> None:
        told = Connection(api_key="token", base_url="http://127.0.0.1:1", takes_spans=True).env()
        assert told["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "http://127.0.0.1:1/v1/traces"
        assert told["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] == "x-cat-herder-run=token"
        login = Connection(oauth_token="login", run_token="token", takes_spans=True).env()
        assert login["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] == "x-cat-herder-run=token"

    def test_o3_it_is_told_nothing_otherwise(self) -> None:
        told = Connection(api_key="token", base_url="http://127.0.0.1:1").env()
        assert not [name for name in told if "OTEL" in name or "TELEMETRY" in name]


class TestWhichRuns:
    def order(self, traceparent: str) -> RunOrder:
        here = Path("/nowhere")
        folders = RunPaths(workspace=here, home=here, answers=here, run=here, lock=here)
        return RunOrder("00000000-0000-4000-8000-000000000000", folders, "Go.", traceparent=traceparent)

    def test_o3_only_a_traced_run_may_send_spans_and_only_if_they_are_wanted(self, settings: Any) -> None:
        traced(settings, "http://127.0.0.1:9")
        assert composition._spans_of(self.order(CONTEXT.traceparent)) is not None
        assert composition._spans_of(self.order("")) is None
        for changed in ({"agent_spans": "no"}, {"otlp_endpoint": None}, {"otel_disabled": True}):
            traced(settings, "http://127.0.0.1:9", **{"otel_disabled": False, **changed})
            assert composition._spans_of(self.order(CONTEXT.traceparent)) is None

    def test_o3_a_worker_host_needs_an_endpoint_of_its_own(self, settings: Any) -> None:
        """It has no other way to the endpoint; its own variables decide, not those of the portal."""
        traced(settings, "http://127.0.0.1:9", worker_token="cathw_mill.x")
        assert composition._spans_of(self.order(CONTEXT.traceparent)) is not None
        traced(settings, "", worker_token="cathw_mill.x")
        assert composition._spans_of(self.order(CONTEXT.traceparent)) is None


def agent_span(number: int) -> TraceSpan:
    return TraceSpan(
        context=TraceContext(CONTEXT.trace_id, f"{number:016x}"),
        parent_id=CONTEXT.span_id,
        name="claude_code.tool",
        start=1_000,
        end=2_000,
        failed=number == 1,
        attributes={"tool_name": "Bash", "duration_ms": 5, "success": True, "ttft_ms": 0.5},
    )


class TestSending:
    @pytest.fixture(autouse=True)
    def endpoint(self, collector: Collector, settings: Any) -> None:
        traced(settings, collector.url)

    def test_o3_they_are_sent_as_a_service_of_their_own(
        self, collector: Collector, waiting: WaitingSpans, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", "herd-of-berlin")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=berlin")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=berlin")
        waiting.put([agent_span(1), agent_span(2)])
        assert waiting.send(SpanSender()) == "" == waiting.send(SpanSender())
        ((_, headers, _),) = collector.receiver.posts
        assert headers["x-tenant"] == "berlin"
        failed, other = collector.spans()
        assert failed.failed and not other.failed
        assert (other.trace_id, other.span_id, other.parent_id) == (
            CONTEXT.trace_id,
            "0" * 15 + "2",
            "cd" * 8,
        )
        assert (other.name, other.start, other.end) == ("claude_code.tool", 1_000, 2_000)
        assert other.attributes == agent_span(2).attributes
        assert other.resource["service.name"] == "claude-code"
        assert other.resource["deployment.environment.name"] == "berlin"

    def test_o3_they_wait_for_an_endpoint_that_is_down(
        self, collector: Collector, waiting: WaitingSpans
    ) -> None:
        collector.receiver.status = 401
        waiting.put([agent_span(1)])
        assert waiting.send(SpanSender()) == "it answers 401"
        collector.receiver.status = 200
        assert waiting.send(SpanSender()) == "" and len(collector.spans()) == 2

    def test_o3_a_batch_that_is_refused_does_not_hold_up_the_others(
        self, collector: Collector, waiting: WaitingSpans, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(agent_spans, "BATCH", 1)
        collector.receiver.status = 400
        waiting.put([agent_span(1), agent_span(2)])
        for _ in range(2):
            waiting.send(SpanSender())
        assert [one.span_id[-1] for one in collector.spans()] == ["1", "2"]

    def test_o3_the_oldest_are_dropped_with_one_line_in_the_log(
        self,
        collector: Collector,
        waiting: WaitingSpans,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(agent_spans, "MOST_WAITING", 2)
        for number in range(1, 6):
            waiting.put([agent_span(number)])
        said = ["spans of agents are dropped, because more than 2 wait to be sent"]
        assert [record.getMessage() for record in caplog.records] == said
        waiting.send(SpanSender())
        assert [one.span_id[-1] for one in collector.spans()] == ["4", "5"]
        waiting.put([agent_span(number) for number in range(1, 4)])
        assert [record.getMessage() for record in caplog.records] == 2 * said, (
            "it is said each time it begins"
        )

    @pytest.mark.django_db(transaction=True)
    def test_o3_the_thread_of_the_portal_s_spans_sends_them(
        self, collector: Collector, waiting: WaitingSpans, caplog: pytest.LogCaptureFixture
    ) -> None:
        exporter, sender = SpanExporter(SpanSender), SpanSender()
        collector.receiver.status = 401
        waiting.put([agent_span(1)])
        with caplog.at_level(logging.INFO, logger="tasks_app"):
            exporter._round(sender)
            exporter._round(sender)
            collector.receiver.status = 200
            exporter._round(sender)
        assert len(collector.spans()) == 3
        assert [record.levelname for record in caplog.records if "spans" in record.getMessage()] == [
            "WARNING", "INFO",
        ]  # fmt: skip

    def test_o3_doctor_says_that_they_are_sent(self) -> None:
        (finding,) = services.traces()
        assert finding.text.endswith("takes spans, also those of Claude Code")


def below(spans: list[Received], root: str) -> set[str]:
    """Return the ids of all spans below this one."""
    found, parents = set[str](), {root}
    while parents:
        parents = {one.span_id for one in spans if one.parent_id in parents}
        found |= parents
    return found


def check_places(task: Task, collector: Collector) -> None:
    """All spans are in the task's trace, those of the two processes below their runs."""
    spans = collector.spans()
    assert {one.trace_id for one in spans} == {context_of_task(task).trace_id}
    agents = [one for one in spans if one.resource["service.name"] == "claude-code"]
    first, second = collector.named("invoke_agent claude-code")
    interactions = collector.named("claude_code.interaction")
    assert [one.parent_id for one in interactions] == [first.span_id, second.span_id]
    assert {one.span_id for one in agents} == below(spans, first.span_id) | below(spans, second.span_id)
    before, after = (one.span_id for one in interactions)
    tools = [(one.attributes["tool_name"], one.parent_id) for one in collector.named("claude_code.tool")]
    assert tools == [("Bash", before), ("AskUserQuestion", before), ("Bash", after)]
    models = collector.named("claude_code.llm_request")
    assert len(models) == 4 and all(one.attributes["output_tokens"] > 0 for one in models)


def check_texts(task: Task, collector: Collector) -> None:
    agents = [one for one in collector.spans() if one.resource["service.name"] == "claude-code"]
    assert not [one for one in agents if one.events]
    listed = run_spans.FIGURES | run_spans.FLAGS | run_spans.WORDS
    assert set().union(*(one.attributes for one in agents)) <= listed
    sent = b"".join(body for _, _, body in collector.receiver.posts)
    texts = ["Ultramarine", "Leftwards", "REDACTED", "printenv", "trace.txt", "noted it", "user.id"]
    texts += [Question.objects.get().items[0]["question"], str(paths.workspace(task).path)]
    assert not [text for text in texts if text.encode() in sent]


def record_bodies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list to which the bodies are added that the proxy receives."""
    received: list[bytes] = []
    take = RunSpans.take

    def record(self: RunSpans, body: bytes) -> bytes:
        received.append(body)
        return take(self, body)

    monkeypatch.setattr(RunSpans, "take", record)
    return received


def tell_the_program(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    usual = Connection.env
    monkeypatch.setattr(Connection, "env", lambda self: {**usual(self), **variables})


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
@pytest.mark.django_db(transaction=True)
class TestRealProgram:
    @pytest.mark.parametrize(("network", "talkative"), [("model", False), ("none", True)])
    def test_o3_the_spans_of_claude_code_join_the_trace_of_their_task(
        self,
        metered: Runner,
        collector: Collector,
        waiting: WaitingSpans,
        settings: Any,
        monkeypatch: pytest.MonkeyPatch,
        network: str,
        talkative: bool,
    ) -> None:
        """Two processes with a question in between. No text is passed on, even if the program sends it."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret")
        traced(settings, collector.url)
        received = record_bodies(monkeypatch)
        if talkative:
            tell_the_program(monkeypatch, OTEL_LOG_USER_PROMPTS="1", OTEL_LOG_TOOL_DETAILS="1")
        project = metered.project(NETWORK.format(network=network))
        task = metered.task(text="# Ultramarine\n\nrehearsal: tell-the-trace\n", project=project)
        assert metered.advance(task).phase == Phase.WAITING_FOR_INPUT
        assert received, "sent when the process exited"
        metered.answer_all(task, "Leftwards")
        assert metered.advance(task).phase == Phase.DONE
        assert waiting.send(SpanSender()) == send_ended(SpanSender()) == ""
        check_places(task, collector)
        check_texts(task, collector)
        assert (b"Ultramarine" in b"".join(received)) is talkative
        assert b"printenv" in b"".join(received)
        assert file_in(task, "secrets.txt").read_text().split() == ["2", "2"], (
            "only how long to wait at the exit"
        )

    def test_o3_without_the_setting_the_program_sends_nothing(
        self, metered: Runner, collector: Collector, waiting: WaitingSpans, settings: Any
    ) -> None:
        traced(settings, collector.url, agent_spans="no")
        task = metered.task(text="# Look\n\nrehearsal: look-around\n")
        assert metered.advance(task).phase == Phase.DONE
        send_ended(SpanSender())
        waiting.send(SpanSender())
        assert {one.resource["service.name"] for one in collector.spans()} == {"cat-herder"}

    def test_o3_a_program_whose_spans_are_refused_works_and_ends_as_usual(
        self,
        metered: Runner,
        collector: Collector,
        waiting: WaitingSpans,
        settings: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        traced(settings, collector.url)

        def fail(self: RunSpans, body: bytes) -> bytes:
            raise ValueError("a fault of the portal")

        monkeypatch.setattr(RunSpans, "take", fail)
        task = metered.task(text="# Look\n\nrehearsal: look-around\n")
        assert metered.advance(task).phase == Phase.DONE
        assert waiting.send(SpanSender()) == "" and collector.spans() == []


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
def test_o3_a_terminal_sends_them_before_it_ends(installation: Installation, collector: Collector) -> None:
    """From the variables to the endpoint, in a process of its own."""
    path = installation.task_file("# Write it\n\nrehearsal: no-questions\n")
    installation.variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "CATHERDER_AGENT_SPANS": "yes",
    }
    ran = installation.manage("run_task", path, "--project", "plain", "--no-input")
    assert ran.returncode == 0, ran.stderr
    (run,) = collector.named("invoke_agent claude-code")
    (interaction,) = collector.named("claude_code.interaction")
    assert interaction.parent_id == run.span_id and interaction.trace_id == run.trace_id

"""The API key proxy (R4, M7, M8): an agent uses the model without ever seeing the key, within its limits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent.port import DollarsLeft
from tasks_app.agent.proxy import ApiKeyProxy, RunLimits, connections, server

MODEL = "claude-sonnet-4-5-20250929"
MILLION = 1_000_000


class Upstream(ThreadingHTTPServer):
    """Stands where the Messages API would: answers in two pieces, the second when told to."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.sizes: list[int] = []
        self.under_way = 0
        self.most_under_way = 0
        self.lock = threading.Lock()
        self.go_on = threading.Event()
        self.usage: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 1}
        self.output = 500
        #: Pieces of text that it sends before it waits, each of 100 tokens.
        self.pieces = 0
        self.pause = 0.005
        self.sent_pieces = 0
        self.status = 200
        self.model = MODEL

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class _Answer(BaseHTTPRequestHandler):
    server: Upstream

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_POST(self) -> None:
        mine = self.server
        with mine.lock:
            mine.under_way += 1
            mine.most_under_way = max(mine.most_under_way, mine.under_way)
        try:
            self._answer()
        finally:
            with mine.lock:
                mine.under_way -= 1

    def _answer(self) -> None:
        mine, left, body = self.server, int(self.headers["content-length"]), b""
        mine.sizes.append(left)
        while left:
            piece = self.rfile.read(min(left, 65_536))
            if not piece:
                return
            left -= len(piece)
            body = body + piece if len(body) < 100_000 else body
        headers = {k.lower(): v for k, v in self.headers.items()}
        mine.seen.append((self.path, headers, body))
        self.send_response(mine.status)
        if json.loads(body[:60].partition(b",")[0] + b"}").get("stream") is False:
            self._whole()
        else:
            self._stream()

    def _whole(self) -> None:
        used = {**self.server.usage, "output_tokens": self.server.output}
        body = json.dumps({"type": "message", "model": self.server.model, "usage": used}).encode()
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.end_headers()
        message = {"model": self.server.model, "usage": self.server.usage}
        self.wfile.write(event({"type": "message_start", "message": message}))
        self.wfile.flush()
        piece = event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "word " * 80}})
        for _ in range(self.server.pieces):
            self.wfile.write(piece)
            self.wfile.flush()
            self.server.sent_pieces += 1
            threading.Event().wait(self.server.pause)
        self.server.go_on.wait(10)
        end = {"type": "message_delta", "usage": {"output_tokens": self.server.output}}
        self.wfile.write(event(end))


def event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[ApiKeyProxy]:
    running = ApiKeyProxy(api_key="sk-real", upstream=f"http://127.0.0.1:{upstream.server_port}/base")
    running.start()
    yield running
    running.stop()


def request(**more: Any) -> bytes:
    return json.dumps({"model": MODEL, "max_tokens": 1000, "messages": [], **more}).encode()


@contextmanager
def posted(
    proxy: ApiKeyProxy, token: str, body: bytes = b"", path: str = "/v1/messages?beta=true"
) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
    headers = {"x-api-key": token, "anthropic-version": "2023-06-01"}
    connection.request("POST", path, body or request(), headers)
    with connection.getresponse() as response:
        yield response
    connection.close()


def post(
    proxy: ApiKeyProxy, token: str, body: bytes = b"", path: str = "/v1/messages?beta=true"
) -> tuple[int, bytes]:
    with posted(proxy, token, body, path) as response:
        return response.status, response.read()


def refusal(answer: tuple[int, bytes]) -> tuple[int, str, str]:
    fault = json.loads(answer[1])["error"]
    return answer[0], fault["type"], fault["message"]


def test_a_request_with_a_run_token_is_forwarded_with_the_real_key(
    proxy: ApiKeyProxy, upstream: Upstream
) -> None:
    upstream.go_on.set()
    with proxy.run_token() as (token, _):
        answer = post(proxy, token)
    assert answer[0] == 200
    assert answer[1].endswith(event({"type": "message_delta", "usage": {"output_tokens": 500}}))
    path, headers, body = upstream.seen[0]
    assert path == "/base/v1/messages?beta=true"
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-real", "2023-06-01")
    assert body == request()
    assert "sk-real" not in token


def test_an_answer_streams_before_it_has_ended(proxy: ApiKeyProxy, upstream: Upstream) -> None:
    with proxy.run_token() as (token, meter), posted(proxy, token) as response:
        assert b"message_start" in response.read1(1000)  # the upstream has not sent the rest yet
        assert meter.usage.input_tokens == 1000
        upstream.go_on.set()
        assert b"message_delta" in response.read()


def test_a_token_is_good_only_while_its_run_lasts(proxy: ApiKeyProxy, upstream: Upstream) -> None:
    with proxy.run_token() as (token, _):
        pass
    assert refusal(post(proxy, token))[:2] == (401, "authentication_error")
    assert post(proxy, "sk-real")[0] == 401
    assert upstream.seen == []


@pytest.mark.parametrize(
    "path", ["/v1/organizations/api_keys", "/v1/files", "/v1/models", "/v1/messages/../files", "//evil/"]
)
def test_only_the_addresses_that_an_agent_needs_are_reached(
    proxy: ApiKeyProxy, upstream: Upstream, path: str
) -> None:
    with proxy.run_token() as (token, _):
        assert post(proxy, token, path=path)[0] == 403
    assert upstream.seen == []


def test_an_unreachable_model_is_a_readable_error() -> None:
    proxy = ApiKeyProxy(api_key="sk-real", upstream="http://127.0.0.1:9")
    proxy.start()
    try:
        with proxy.run_token() as (token, meter):
            status, _, message = refusal(post(proxy, token))
            assert status == 502
            assert "cannot be reached" in message
            assert not meter.usage.any
    finally:
        proxy.stop()


@pytest.mark.parametrize("sent", ["", "x-api-key: {token}\r\ncontent-length: 60000000\r\n\r\n"])
def test_a_client_that_never_says_the_rest_is_let_go(
    proxy: ApiKeyProxy, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    """R4: else each of its connections would hold a descriptor of the worker for ever."""
    assert connections.CLIENT_SECONDS == 60
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.1)
    with proxy.run_token() as (token, _), socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        client.settimeout(20)
        client.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n" + sent.format(token=token).encode())
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


def port_of(proxy: ApiKeyProxy) -> int:
    return int(proxy.url.rpartition(":")[2])


def test_connections_are_limited_and_the_longest_idle_one_is_closed(
    proxy: ApiKeyProxy, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M7: descriptors of the worker are not for agents to use up, nor can one agent shut the others out."""
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    clients = []
    for _ in range(4):
        clients.append(socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=20))
        until(lambda: len(proxy._server.server_state.connections) == min(len(clients), 3))
    try:
        assert clients[0].recv(1) == b""
        upstream.go_on.set()
        with proxy.run_token() as (token, _):
            assert post(proxy, token)[0] == 200
    finally:
        for client in clients:
            client.close()


def test_connections_that_all_have_a_request_are_bounded_too(
    proxy: ApiKeyProxy, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 1)
    with proxy.run_token() as (token, _), ThreadPoolExecutor(1) as threads:
        first = threads.submit(post, proxy, token)
        until(lambda: upstream.under_way == 1)
        with socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=20) as another:
            assert another.recv(1) == b""
        upstream.go_on.set()
        assert first.result()[0] == 200


def test_a_request_with_two_lengths_is_refused_and_fills_no_log(
    proxy: ApiKeyProxy, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    """It can be read two ways, and the model's server would read the other one."""
    body = request()
    with proxy.run_token() as (token, _), socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        client.settimeout(20)
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: 5\r\n"
        client.sendall(f"{head}transfer-encoding: chunked\r\n\r\n{len(body):x}\r\n".encode())
        client.sendall(body + b"\r\n0\r\n\r\n")
        answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert upstream.seen == [] and caplog.records == []


class TestFewAtOnce:
    """M7: what agents send does not fill the worker's memory."""

    def test_a_run_has_few_requests_under_way(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        with proxy.run_token() as (token, _), ThreadPoolExecutor(server.PER_RUN + 4) as threads:
            answers = [threads.submit(post, proxy, token) for _ in range(server.PER_RUN + 4)]
            until(lambda: upstream.under_way == server.PER_RUN)
            upstream.go_on.set()
            assert [answer.result()[0] for answer in answers] == [200] * len(answers)
        assert upstream.most_under_way == server.PER_RUN

    def test_what_waits_is_bounded_too(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        most = server.PER_RUN + server.WAITING_PER_RUN
        with proxy.run_token() as (token, _), ThreadPoolExecutor(most + 1) as threads:
            answers = [threads.submit(post, proxy, token) for _ in range(most + 1)]
            until(lambda: any(answer.done() for answer in answers))
            upstream.go_on.set()
            turned_away = [refusal(one.result())[:2] for one in answers if one.result()[0] != 200]
        assert turned_away == [(529, "overloaded_error")]

    @pytest.mark.once(on="sqlite")
    def test_large_requests_at_once_do_not_grow_the_process(self, upstream: Upstream) -> None:
        """Requests that were held whole took 1 GB when 15 came at once."""
        upstream.go_on.set()
        script = Path(__file__).with_name("proxy_process.py")
        command = [sys.executable, str(script), f"http://127.0.0.1:{upstream.server_port}"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        ) as process:
            assert process.stdin
            assert process.stdout
            address, token = process.stdout.readline().split()
            before = memory_of(process.pid)
            with ThreadPoolExecutor(15) as threads:
                done = [threads.submit(post_large, address, token) for _ in range(15)]
                assert {one.result() for one in done} == {200}
            grown = memory_of(process.pid) - before
            process.stdin.close()
            process.wait(20)
        assert min(upstream.sizes) > 8 * MILLION
        assert grown < 50 * MILLION


def post_large(address: str, token: str) -> int:
    """Sends 8 MB in pieces; the model's name comes last."""
    head, tail = (
        b'{"stream":true,"messages":[{"content":"',
        b'"}],"max_tokens":9,"model":"%s"}' % MODEL.encode(),
    )
    piece, times = b"0123456789abcdef" * 4096, 125
    connection = HTTPConnection(address, timeout=60)
    headers = {"x-api-key": token, "content-length": str(len(head) + len(tail) + times * len(piece))}
    connection.request("POST", "/v1/messages", iter([head, *[piece] * times, tail]), headers)
    with connection.getresponse() as response:
        response.read()
        return response.status


def memory_of(pid: int) -> int:
    """The most that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def until(holds: Any) -> None:
    event = threading.Event()
    for _ in range(2000):
        if holds():
            return
        event.wait(0.01)
    raise AssertionError("it did not come to that")


class TestModels:
    """M8: an agent that asks for another model than its step's is refused."""

    @pytest.mark.parametrize("asked", ["claude-opus-5-5", "gpt-9", "claude-sonnet-9x"])
    def test_another_model_is_refused(self, proxy: ApiKeyProxy, upstream: Upstream, asked: str) -> None:
        with proxy.run_token(RunLimits(model="claude-sonnet-4-5")) as (token, meter):
            status, kind, message = refusal(post(proxy, token, request(model=asked)))
            assert (status, kind) == (403, "permission_error")
            assert asked in message
            assert "claude-sonnet-4-5" in message
            assert not meter.usage.any
        assert upstream.seen == []

    @pytest.mark.parametrize(
        "body",
        [
            b'{"model":"claude-haiku-4-5","messages":[],"model":"claude-opus-5-5"}',
            b'{"model":"claude-haiku-4-5","mod\\u0065l":"claude-opus-5-5"}',
            '{"model":"claude-opus-5-5"}'.encode("utf-16"),
            b'[{"model":"claude-haiku-4-5"}]',
            b'{"model":"claude-haiku-4-5"',
            b'{"model":"claude-haiku-4-5"} {"model":"claude-opus-5-5"}',
            b"{'model':'claude-opus-5-5'}",
        ],
    )
    def test_a_body_that_can_be_read_two_ways_is_refused(
        self, proxy: ApiKeyProxy, upstream: Upstream, body: bytes
    ) -> None:
        with proxy.run_token(RunLimits(model="sonnet")) as (token, _):
            assert refusal(post(proxy, token, body))[:2] == (400, "invalid_request_error")
        assert upstream.seen == []

    @pytest.mark.parametrize("asked", ["claude-sonnet-4-5", MODEL, "claude-haiku-4-5-20251001"])
    def test_the_step_s_model_and_the_small_one_are_allowed(
        self, proxy: ApiKeyProxy, upstream: Upstream, asked: str
    ) -> None:
        upstream.go_on.set()
        with proxy.run_token(RunLimits(model="claude-sonnet-4-5")) as (token, _):
            assert post(proxy, token, request(model=asked))[0] == 200


class TestCounting:
    """M8, P11: tokens and dollars are those of the responses."""

    def test_a_stream_is_counted(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        upstream.usage |= {
            "cache_read_input_tokens": 10_000,
            "cache_creation_input_tokens": 3000,
            "cache_creation": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 2000},
        }
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            post(proxy, token)
            post(proxy, token)
        used = meter.usage
        assert (used.input_tokens, used.output_tokens) == (2000, 1000)
        assert (used.cache_write_tokens, used.cache_read_tokens) == (6000, 20_000)
        # Per request: 1000 at 3 $, 500 at 15 $, 10,000 at 0.3 $, 1000 at 3.75 $ and 2000 at 6 $ a million.
        assert used.cost_usd == pytest.approx(2 * (0.003 + 0.0075 + 0.003 + 0.00375 + 0.012))
        assert meter.model == MODEL

    def test_another_model_that_answered_counts_for_itself(
        self, proxy: ApiKeyProxy, upstream: Upstream
    ) -> None:
        """The API may hand a request over to another model, after a refusal for example."""
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            post(proxy, token)
            upstream.model = "claude-opus-4-1-20250805"
            post(proxy, token)
            upstream.model = "a-gateway's-name"
            post(proxy, token)
        parts = {name: used.output_tokens for name, used in meter.by_model.items()}
        assert parts == {MODEL: 1000, "claude-opus-4-1-20250805": 500}
        # 1000 at 15 $ and 500 at 75 $ a million, against 3 $ and 15 $.
        assert meter.by_model["claude-opus-4-1-20250805"].cost_usd == pytest.approx(0.0525)

    def test_a_whole_message_is_counted(self, proxy: ApiKeyProxy) -> None:
        with proxy.run_token() as (token, meter):
            body = b'{"stream": false,' + request()[1:]
            assert post(proxy, token, body)[0] == 200
            until(lambda: meter.usage.output_tokens == 500)

    def test_counting_tokens_costs_nothing(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            assert post(proxy, token, path="/v1/messages/count_tokens")[0] == 200
            assert not meter.usage.any

    def test_an_error_of_the_model_costs_nothing(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        upstream.status = 529
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            assert post(proxy, token)[0] == 529
            assert not meter.usage.any

    def test_who_hangs_up_pays_what_came(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        with proxy.run_token() as (token, meter):
            with posted(proxy, token) as response:
                response.read1(1000)
            until(lambda: not meter._open)
            assert meter.usage.input_tokens == 1000

    def test_a_silly_number_is_not_believed(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        upstream.usage = {"input_tokens": 10**30, "output_tokens": -5, "cache_read_input_tokens": True}
        upstream.output = 10
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            post(proxy, token)
            assert (meter.usage.input_tokens, meter.usage.output_tokens) == (0, 10)


class TestBudget:
    """M8: `maxCostUsd` is held against `curl` as well."""

    def test_what_is_used_up_is_refused(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        upstream.go_on.set()
        with proxy.run_token(RunLimits(max_cost_usd=0.02)) as (token, meter):  # each costs 0.0105 $
            assert [post(proxy, token)[0] for _ in range(4)] == [200, 200, 402, 402]
            status, kind, message = refusal(post(proxy, token))
            assert (status, kind) == (402, "billing_error")
            assert "limits.maxCostUsd" in message
            assert meter.used_up
        assert len(upstream.seen) == 2

    def test_requests_at_once_do_not_spend_the_same_dollars(
        self, proxy: ApiKeyProxy, upstream: Upstream
    ) -> None:
        """Each but the first must fit beside what the others may come to: `max_tokens`."""
        with proxy.run_token(RunLimits(max_cost_usd=0.02)) as (token, meter):
            with ThreadPoolExecutor(4) as threads:
                answers = [threads.submit(post, proxy, token) for _ in range(4)]
                until(lambda: upstream.under_way >= 1)
                threading.Event().wait(0.3)
                assert len(upstream.seen) == 1
                upstream.go_on.set()
                assert sorted(answer.result()[0] for answer in answers) == [200, 200, 402, 402]
            assert meter.usage.cost_usd == pytest.approx(0.021)

    def test_m8_a_response_is_cut_where_the_dollars_end(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        """The last one would cost 0.18 $ of the 0.02 $ that are left: the model is not asked for the rest."""
        upstream.pieces, upstream.output = 120, 12_000
        upstream.pause = 0.1  # so that the proxy reads piece by piece also on a busy machine
        upstream.go_on.set()
        with proxy.run_token(RunLimits(max_cost_usd=0.02)) as (token, meter):
            with pytest.raises(IncompleteRead):
                post(proxy, token)
            until(lambda: not meter._open)
            assert 0.02 <= meter.usage.cost_usd < 0.023
            assert refusal(post(proxy, token))[:2] == (402, "billing_error")
            assert not meter.over_budget
        assert upstream.sent_pieces < 60

    @pytest.mark.parametrize(("limit", "named"), [("soft_limit_usd", "soft limit"), ("budget_usd", "month")])
    def test_m8_what_has_begun_below_the_soft_limit_or_a_budget_is_read_to_its_end(
        self, proxy: ApiKeyProxy, upstream: Upstream, limit: str, named: str
    ) -> None:
        """It was cut: an edit was paid for and lost, and so was the next one that little was allowed for."""
        upstream.pieces, upstream.output = 120, 12_000
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            setattr(meter, limit, 0.02)
            assert post(proxy, token)[0] == 200
            status, kind, message = refusal(post(proxy, token))
            assert (status, kind, meter.over_budget) == (402, "billing_error", True)
            assert named in message
        assert len(upstream.seen) == 1

    def test_m8_a_request_that_does_not_fit_is_not_sent(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        """What the cache has counts as such, but not in what is needed: it is needed later."""
        upstream.usage = {"cache_creation_input_tokens": 50_000, "output_tokens": 1}
        upstream.go_on.set()
        text = {"role": "user", "content": "x" * 200_000}
        with proxy.run_token() as (token, meter):
            meter.budget_usd = 0.2
            status, kind, message = refusal(post(proxy, token, request(messages=[text])))
            assert (status, kind, meter.over_budget) == (402, "billing_error", True)
            assert meter.needed_usd == pytest.approx(1.1 * 0.3075, rel=0.01), "50,000 written, 500 answered"
            assert "$0.34" in message and upstream.seen == []
            meter.budget_usd = 0.31
            assert post(proxy, token, request(messages=[text]))[0] == 200
            assert meter.needed_usd is None and meter.usage.cost_usd == pytest.approx(0.195)
            more = request(messages=[text, {"role": "user", "content": "y" * 4000}])
            assert post(proxy, token, more)[0] == 200
            upstream.usage["cache_creation_input_tokens"] = 0
            meter.budget_usd = meter.usage.cost_usd + 0.02
            assert refusal(post(proxy, token, more))[0] == 402
            assert meter.needed_usd == pytest.approx(1.1 * 0.3135, rel=0.01)

    def test_m8_runs_with_the_same_budget_do_not_spend_the_same_dollars(
        self, proxy: ApiKeyProxy, upstream: Upstream
    ) -> None:
        """Each has read that 0.02 $ are left. One with another budget does not wait for them."""
        with (
            proxy.run_token(budgets=["project 1", "person 1"]) as (first, _),
            proxy.run_token(budgets=["project 1", "person 2"]) as (second, meter),
            proxy.run_token(budgets=["project 2", "person 3"]) as (third, _),
            ThreadPoolExecutor(4) as threads,
        ):
            for one in proxy._meters():
                one.follow_budgets(DollarsLeft(of_budgets=0.02))
            answers = [threads.submit(post, proxy, first)]
            until(lambda: len(upstream.seen) == 1)
            answers += [threads.submit(post, proxy, second) for _ in range(2)]
            other = threads.submit(post, proxy, third)
            until(lambda: len(upstream.seen) == 2)
            threading.Event().wait(0.3)
            assert len(upstream.seen) == 2
            upstream.go_on.set()
            assert other.result()[0] == 200
            assert sorted(answer.result()[0] for answer in answers) == [200, 200, 402]
            assert meter.over_budget
            meter.follow_budgets(
                DollarsLeft(0.02), used=meter.usage.cost_usd
            )  # read anew: what the first run cost is in it
            assert post(proxy, second)[0] == 200

    def test_m8_what_other_tasks_cost_is_not_spent_of_a_soft_limit(
        self, proxy: ApiKeyProxy, upstream: Upstream
    ) -> None:
        """They share the names of budgets that are not limited. Their requests neither wait for another."""
        with (
            proxy.run_token(budgets=["project 1", "person 1"]) as (first, one),
            proxy.run_token(budgets=["project 1", "person 1"]) as (second, other),
            ThreadPoolExecutor(2) as threads,
        ):
            for meter in (one, other):
                meter.follow_budgets(DollarsLeft(of_soft_limit=0.02))
            answers = [threads.submit(post, proxy, token) for token in (first, second)]
            until(lambda: len(upstream.seen) == 2)
            upstream.go_on.set()
            assert [answer.result()[0] for answer in answers] == [200, 200]
            assert not one.over_budget and not other.over_budget

    def test_a_budget_that_is_spent_meanwhile_holds_at_once_and_may_be_raised(
        self, proxy: ApiKeyProxy, upstream: Upstream
    ) -> None:
        upstream.go_on.set()
        with proxy.run_token() as (token, meter):
            assert post(proxy, token)[0] == 200
            meter.budget_usd = 0.01  # other runs have spent the rest
            status, kind, message = refusal(post(proxy, token))
            assert (status, kind, meter.over_budget) == (402, "billing_error", True)
            assert "budget for this month" in message
            meter.budget_usd = 0.5
            assert post(proxy, token)[0] == 200
        assert len(upstream.seen) == 2

    def test_a_model_without_a_price_counts_as_the_dearest(
        self, proxy: ApiKeyProxy, upstream: Upstream
    ) -> None:
        upstream.go_on.set()
        upstream.model = "a-model-of-our-own"
        with proxy.run_token(RunLimits(model="a-model-of-our-own")) as (token, meter):
            assert post(proxy, token, request(model="a-model-of-our-own"))[0] == 200
            assert meter.usage.cost_usd == pytest.approx((1000 * 15 + 500 * 75) / MILLION)


class TestReachingOut:
    """A step with `network: none` reaches nothing through the model either."""

    @pytest.mark.parametrize(
        "more",
        [
            {"tools": [{"name": "Bash"}, {"type": "web_search_20250305", "name": "web_search"}]},
            {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]},
            {"mcp_servers": [{"type": "url", "url": "https://evil.example"}]},
            {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "https://e"}}]}]},
        ],
    )
    def test_what_the_model_would_fetch_is_refused(
        self, proxy: ApiKeyProxy, upstream: Upstream, more: dict[str, Any]
    ) -> None:
        upstream.go_on.set()
        with proxy.run_token(RunLimits(reaches_out=False)) as (token, _):
            assert refusal(post(proxy, token, request(**more)))[:2] == (403, "permission_error")
        assert upstream.seen == []
        with proxy.run_token() as (token, _):
            assert post(proxy, token, request(**more))[0] == 200

    def test_an_ordinary_request_passes(self, proxy: ApiKeyProxy, upstream: Upstream) -> None:
        upstream.go_on.set()
        tools = [{"name": "Bash", "input_schema": {"type": "object"}}, {"type": "custom", "name": "x"}]
        with proxy.run_token(RunLimits(reaches_out=False)) as (token, _):
            assert post(proxy, token, request(tools=tools))[0] == 200


def test_a_limit_is_remembered_for_its_own_run(proxy: ApiKeyProxy) -> None:
    """P8."""
    with proxy.run_token() as (_, meter), proxy.run_token() as (_, other):
        meter.note_limit({"retry-after": "3600"})
        assert meter.resets_at is not None
        assert other.resets_at is None
        meter.note_limit({})
        assert meter.resets_at is None


def test_the_same_service_is_on_a_unix_socket(proxy: ApiKeyProxy, upstream: Upstream) -> None:
    upstream.go_on.set()
    body = request()
    with proxy.run_token() as (token, meter), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(proxy.socket_path))
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert b"".join(iter(lambda: client.recv(4096), b"")).startswith(b"HTTP/1.1 200 ")
        assert meter.usage.output_tokens == 500


def test_without_an_own_key_the_agent_s_login_is_passed_on(upstream: Upstream) -> None:
    """With a subscription the CLI holds the token; it is counted all the same."""
    upstream.go_on.set()
    proxy = ApiKeyProxy(upstream=f"http://127.0.0.1:{upstream.server_port}")
    proxy.start()
    try:
        with proxy.run_token() as (token, meter):
            connection = HTTPConnection(proxy.url.removeprefix("http://"), timeout=20)
            headers = {"authorization": "Bearer sk-ant-oat", "x-cat-herder-run": token}
            connection.request("POST", "/v1/messages", request(), headers)
            with connection.getresponse() as response:
                response.read()
            connection.close()
            assert meter.usage.output_tokens == 500
    finally:
        proxy.stop()
    headers = upstream.seen[0][1]
    assert headers["authorization"] == "Bearer sk-ant-oat"
    assert "x-cat-herder-run" not in headers
    assert "x-api-key" not in headers

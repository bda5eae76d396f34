"""The Messages API in rehearsal: messages, server-sent events, errors, token counts, and its server."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tasks_app.core.errors import BadInput
from tasks_app.rehearsal.conversation import Conversation, read_conversation, tokens_in
from tasks_app.rehearsal.scenario import SHIPPED, Scenario, choose_scenario, load_scenarios
from tasks_app.rehearsal.script import Reply, reply_to, side_reply

Event = dict[str, Any]

# The few tokens after the last cache mark, which are never cached.
_UNCACHED_TOKENS = 8
_CHUNK_CHARACTERS = 24


def usage_of(conversation: Conversation, reply: Reply) -> dict[str, int]:
    """Estimate the token counts of a turn: what an earlier turn sent is read from the cache."""
    everything = conversation.model_dump(exclude={"stream", "metadata"})
    total = tokens_in(everything)
    read = 0
    if conversation.rounds:
        messages = everything["messages"]
        turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        read = tokens_in(everything | {"messages": messages[: turns[-1]]})
    return {
        "input_tokens": _UNCACHED_TOKENS,
        "cache_creation_input_tokens": max(0, total - read),
        "cache_read_input_tokens": read,
        "output_tokens": tokens_in(content_of(reply)),
    }


def content_of(reply: Reply) -> list[Event]:
    """Return the content blocks of a reply: its text, then its calls."""
    blocks: list[Event] = []
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input})
    return blocks


def whole_message(conversation: Conversation, reply: Reply) -> Event:
    """Return the reply as one message, as a request without `stream` wants it."""
    return _envelope(conversation, reply) | {
        "content": content_of(reply),
        "stop_reason": _stop_reason(reply),
        "usage": usage_of(conversation, reply),
    }


def stream_events(conversation: Conversation, reply: Reply) -> Iterator[Event]:
    """Yield the reply as the events of a stream, from message_start to message_stop."""
    usage = usage_of(conversation, reply)
    started = _envelope(conversation, reply) | {"usage": usage | {"output_tokens": 1}}
    yield {"type": "message_start", "message": started}
    for index, block in enumerate(content_of(reply)):
        yield from _block_events(index, block)
    delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def event_bytes(event: Event) -> bytes:
    """Return one event as it travels in a stream."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), json_bytes(event))


def error_body(kind: str, message: str) -> Event:
    return {"type": "error", "error": {"type": kind, "message": message}}


def json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8; characters stay themselves, so that no chunk ends inside an escape."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _envelope(conversation: Conversation, reply: Reply) -> Event:
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block_events(index: int, block: Event) -> Iterator[Event]:
    if block["type"] == "text":
        empty: Event = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": part} for part in _split_text(block["text"])]
    else:
        empty = block | {"input": {}}
        whole = json.dumps(block["input"], ensure_ascii=False)
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in _split_text(whole)]
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _split_text(text: str) -> list[str]:
    size = max(_CHUNK_CHARACTERS, len(text) // 200)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _stop_reason(reply: Reply) -> str:
    return reply.stop_reason or ("tool_use" if reply.calls else "end_turn")


# The scripted Messages API: an HTTP server on loopback that stands in for the real one.


log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# Only the latest bodies: one has about 100 kB, and a rehearsal may run for weeks.
KEPT_REQUESTS = 100
STOP_POLL_SECONDS = 0.1


class RehearsalServer:
    """Serves scenarios as a Messages API on a loopback port, in a thread of this process.

    Every response depends on the request alone, so a restarted server continues a conversation. Use it as a
    context manager, or call `start()` and `stop()`. Raises BadInput for an invalid file in `scenarios`.
    """

    def __init__(self, *, scenarios: Path = SHIPPED, port: int = 0) -> None:
        self._scenarios = load_scenarios(scenarios)
        self._port = port
        self._http: _HttpServer | None = None
        self._thread: threading.Thread | None = None
        self._requests: deque[dict[str, Any]] = deque(maxlen=KEPT_REQUESTS)

    def start(self) -> None:
        """Listen and serve. Raises OSError if the port is in use. Does nothing if it is already running."""
        if self._http is not None:
            return
        self._http = _HttpServer((LOOPBACK, self._port), self._scenarios, self._requests)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(STOP_POLL_SECONDS,), name="rehearsal", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL for ANTHROPIC_BASE_URL, while the server runs."""
        if self._http is None:
            raise RuntimeError("The rehearsal server is not running; call start() first.")
        return f"http://{LOOPBACK}:{self._http.server_port}"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The latest bodies posted to /v1/messages, oldest first."""
        return list(self._requests)

    def stop(self) -> None:
        """Stop immediately; delayed turns are aborted. Does nothing if it is not running."""
        http, thread, self._http, self._thread = self._http, self._thread, None, None
        if http is None or thread is None:
            return
        http.stopping.set()
        http.shutdown()
        http.server_close()
        thread.join()

    def __enter__(self) -> RehearsalServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], scenarios: Iterable[Scenario], requests: deque[dict[str, Any]]
    ) -> None:
        super().__init__(address, _Handler)
        self.scenarios = tuple(scenarios)
        self.requests = requests
        self.stopping = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore lost connections, because agents are often killed during a turn."""
        if not isinstance(sys.exception(), ConnectionError):
            log.exception("The rehearsal server failed on a request.")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; the portal has its own log."""

    def do_HEAD(self) -> None:
        self._send_json(HTTPStatus.OK, {})

    def do_GET(self) -> None:
        self._send_json(HTTPStatus.OK, {"type": "rehearsal"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            self._route(self.path.partition("?")[0], body)
        except BadInput as error:
            self._send_json(HTTPStatus.BAD_REQUEST, error_body("invalid_request_error", str(error)))

    def _route(self, path: str, body: bytes) -> None:
        if path == "/v1/messages/count_tokens":
            self._send_json(HTTPStatus.OK, {"input_tokens": tokens_in(body.decode(errors="replace"))})
        elif path == "/v1/messages":
            conversation = read_conversation(body)
            self.server.requests.append(json.loads(body))
            reply = side_reply(conversation)
            if conversation.tools:
                reply = reply_to(conversation, choose_scenario(self.server.scenarios, conversation.prompt))
            self._send_reply(conversation, reply)
        else:
            refusal = error_body("not_found_error", f"The rehearsal server knows no {path}.")
            self._send_json(HTTPStatus.NOT_FOUND, refusal)

    def _send_reply(self, conversation: Conversation, reply: Reply) -> None:
        if reply.delay and self.server.stopping.wait(reply.delay):
            self.close_connection = True
        elif reply.failure:
            refusal = error_body(reply.failure.type, reply.failure.message)
            self._send_json(reply.failure.status, refusal, headers=reply.failure.headers)
        elif conversation.stream:
            self._send_stream(list(stream_events(conversation, reply)), cut=reply.cut)
        else:
            self._send_json(HTTPStatus.OK, whole_message(conversation, reply), cut=reply.cut)

    def _send_stream(self, events: list[Event], *, cut: bool) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events[: len(events) // 2] if cut else events:
            data = event_bytes(event)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send_json(
        self, status: int, value: Any, *, headers: dict[str, str] | None = None, cut: bool = False
    ) -> None:
        data = json_bytes(value)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut

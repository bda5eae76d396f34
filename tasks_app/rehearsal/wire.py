"""The format of the Messages API: messages, server-sent events, errors, token counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tasks_app.rehearsal.conversation import Conversation, tokens_in
from tasks_app.rehearsal.script import Reply

Event = dict[str, Any]

# The few tokens after the last cache mark, which are never cached.
_UNCACHED_TOKENS = 8
_CHUNK_CHARACTERS = 24


def usage_of(conversation: Conversation, reply: Reply) -> dict[str, int]:
    """Estimate the token counts of a turn: what an earlier turn sent is read from the cache."""
    everything = conversation.model_dump(exclude={"stream", "metadata"})
    total = tokens_in(everything)
    read = (
        tokens_in(everything | {"messages": _before_last_turn(everything["messages"])})
        if conversation.rounds
        else 0
    )
    return {
        "input_tokens": _UNCACHED_TOKENS,
        "cache_creation_input_tokens": max(0, total - read),
        "cache_read_input_tokens": read,
        "output_tokens": tokens_in(content_of(reply)),
    }


def content_of(reply: Reply) -> list[Event]:
    """Return the content blocks of a reply: its text, then its calls."""
    text: list[Event] = [{"type": "text", "text": reply.text}] if reply.text else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input} for call in reply.calls
    ]
    return text + calls


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
    """Return the body of a refusal."""
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


def _before_last_turn(messages: list[Any]) -> list[Any]:
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[: turns[-1]]

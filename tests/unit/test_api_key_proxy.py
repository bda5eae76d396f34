"""What the API key proxy reads and counts (M8): requests in any pieces, prices, the names of models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks_app.agent.proxy.meter import Refused, RunLimits, RunMeter
from tasks_app.agent.proxy.prices import price_of, usage_of
from tasks_app.agent.proxy.readers import BadRequestBody, RequestReader, ResponseReader

BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": 'a "quoted" \\ text ☃ \n' * 3 + "\\"}],
    "metadata": {"model": "not this one", "max_tokens": 1},
    "tools": [{"name": "Bash", "input_schema": {"type": "object"}}, {"type": "web_search_20250305"}],
    "max_tokens": 32000,
    "stream": True,
    "temperature": -1.5e-3,
    "model": "claude-opus-5-5",
}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_request_is_read_the_same_in_pieces_of_any_size(size: int, ascii_only: bool) -> None:
    body = json.dumps(BODY, ensure_ascii=ascii_only, indent=1).encode()
    reader = RequestReader()
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    reader.finish()
    assert (reader.model, reader.max_tokens, reader.size) == ("claude-opus-5-5", 32000, len(body))
    assert reader.reaches_out == {"web_search_20250305"}


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", '{"a":1,}', '{"a" 1}', '{"a":1]', '{"a":1}{}', '{"a":1,"a":2}', "{'a':1}", "1", "nul"],
)
def test_what_is_not_one_plain_object_is_refused(body: str) -> None:
    reader = RequestReader()
    with pytest.raises(BadRequestBody):
        reader.feed(body.encode())
        reader.finish()


def test_a_nesting_without_end_is_refused() -> None:
    with pytest.raises(BadRequestBody):
        RequestReader().feed(b'{"a":' + b"[" * 10_000)


def test_a_stream_is_counted_the_same_in_pieces_of_any_size() -> None:
    start = {
        "type": "message_start",
        "message": {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 1}},
    }
    delta = {"type": "content_block_delta", "delta": {"text": '"usage": {"output_tokens": 9}'}}
    end = {"type": "message_delta", "usage": {"output_tokens": 77, "input_tokens": None}}
    body = "".join(
        f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in (start, delta, end)
    ).encode()
    for size in (1, 10, len(body)):
        reader = ResponseReader("text/event-stream; charset=utf-8")
        for place in range(0, len(body), size):
            reader.feed(body[place : place + size])
        reader.finish()
        assert reader.usage == {"input_tokens": 5, "output_tokens": 77}
        assert (reader.model, reader.complete) == ("m", True)


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-sonnet-4-5", 15),
        ("claude-sonnet-4-5-20250929", 15),
        ("claude-sonnet-4-5[1m]", 15),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 5),
        ("claude-opus-4-5-20251101", 25),
        ("claude-opus-4-20250514", 75),
        ("vertex_ai/claude-haiku-4-5@20251001", 5),
        ("claude-opus-9", 75),
        ("claude-opus-9-claude-haiku-4-5", 75),
        ("claude-opus-9/claude-haiku-4-5", 75),
        ("not-claude-haiku-4-5", 75),
        ("something-else", 75),
    ],
)
def test_a_model_has_its_price_or_the_dearest(model: str, dollars: float) -> None:
    assert price_of(model).output == dollars


def test_what_changes_the_price_counts() -> None:
    plain = usage_of("claude-opus-4-6", {"output_tokens": 1_000_000}).cost_usd
    assert plain == pytest.approx(25)
    assert usage_of(
        "claude-opus-4-6", {"output_tokens": 1_000_000, "speed": "fast"}
    ).cost_usd == pytest.approx(150)
    searched = {"server_tool_use": {"web_search_requests": 3}}
    assert usage_of("claude-opus-4-6", searched).cost_usd == pytest.approx(0.03)
    short, long = ({"input_tokens": number} for number in (100_000, 200_000))
    assert usage_of("claude-haiku-5-5", short).cost_usd == pytest.approx(0.01)
    assert usage_of("claude-haiku-5-5", long).cost_usd == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("named", "asked", "allowed"),
    [
        ("", "anything", True),
        ("sonnet", "claude-sonnet-5-5", True),
        ("sonnet[1m]", "claude-sonnet-5-5", True),
        ("sonnet", "claude-opus-5-5", False),
        ("opusplan", "claude-sonnet-5-5", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-5", "claude-sonnet-5-5", False),
        ("claude-opus-5-5", "claude-haiku-5-5", True),
        ("claude-opus-5-5", "", False),
        ("claude-opus-5-5", "us.anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("claude-opus-5-5", "claude-haiku-4-5@20251001", True),
        ("claude-opus-5-5", "claude-3-5-haiku-latest", True),
        ("claude-opus-5-5", "anthropic/claude-haiku-4.5", True),
        ("claude-opus-5-5", "claude-fable-5-haiku", False),
        ("claude-opus-5-5", "haiku-claude-fable-5", False),
        ("claude-opus-5-5", "claude-fable-5/claude-haiku-5", False),
        ("sonnet", "claude-fable-5-sonnet", False),
    ],
)
def test_a_step_s_model_says_which_requests_may_name(named: str, asked: str, allowed: bool) -> None:
    assert RunLimits(model=named).allows(asked) is allowed


@pytest.mark.parametrize("value", ["32e3", "32000.0", "-1", '"32000"', "null", "true", "1" * 10])
def test_m8_a_request_that_hides_how_much_it_may_cost_is_refused(value: str) -> None:
    """What it may come to is reserved before it is sent on."""
    reader = RequestReader()
    with pytest.raises(BadRequestBody, match="max_tokens"):
        reader.feed(f'{{"model": "m", "max_tokens": {value}}}'.encode())
        reader.finish()


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5-5"}]}, True),
        ({"fallbacks": [{"model": "claude-opus-5-5"}]}, True),
        ({"messages": [{"role": "user", "content": [{"input": {"model": "claude-opus-5-5"}}]}]}, False),
        ({"tools": [{"input_schema": {"properties": {"model": {"const": "x"}}, "model": "x"}}]}, False),
    ],
    ids=["advisor", "fallback", "what was said", "a tool of the agent"],
)
def test_another_model_that_would_work_on_a_request_must_be_allowed_too(
    more: dict[str, Any], found: bool
) -> None:
    """A request for a small model can have a dear one advise it, within the same response."""
    reader = RequestReader()
    reader.feed(json.dumps({"model": "claude-haiku-5-5", "max_tokens": 5, **more}).encode())
    reader.finish()
    assert reader.more_models == ({"claude-opus-5-5"} if found else set())
    meter = RunMeter(RunLimits(model="sonnet"))
    if found:
        with pytest.raises(Refused, match="names claude-opus-5-5"):
            meter.admit(reader)
    else:
        assert meter.admit(reader)


def test_what_an_advisor_used_counts_at_its_own_price() -> None:
    advice = {"type": "advisor_message", "model": "claude-opus-5-5", "output_tokens": 1_000_000}
    usage = {"output_tokens": 1, "iterations": [{"type": "message", "output_tokens": 1}, advice, None]}
    counted = usage_of("claude-haiku-5-5", usage)
    assert counted.output_tokens == 1_000_001
    assert counted.cost_usd > usage_of("claude-opus-5-5", {"output_tokens": 1_000_000}).cost_usd


TOOL = {"name": "Bash", "input_schema": {"type": "object"}}
NOTICE = "[Tool result missing due to internal error]"


def conversation(*results: dict[str, Any], tools: bool = True) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": name, "name": "Bash", "input": {"id": "c"}} for name in ("a", "b")]
    blocks = [{"type": "tool_result", **result} for result in results]
    messages = [{"role": "assistant", "content": calls}, {"role": "user", "content": blocks}]
    return {"messages": messages, **({"tools": [TOOL]} if tools else {}), "model": "m"}


def read_for(body: dict[str, Any], *calls: str, size: int = 1000) -> RequestReader:
    reader, data = RequestReader(calls=calls), json.dumps(body).encode()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    reader.finish()
    return reader


@pytest.mark.parametrize("size", [1, 3, 64, 10_000])
@pytest.mark.parametrize(
    ("content", "is_answered"),
    [
        ("Blue", True),
        ("", True),
        ("long " * 10_000, True),
        ([], True),
        ([{"type": "text", "text": "Blue"}, {"type": "image", "source": {"data": "x" * 9000}}], True),
        (NOTICE, False),
        ([{"type": "text", "text": NOTICE}], False),
    ],
)
def test_r1_a_result_is_found_in_pieces_of_any_size(size: int, content: Any, is_answered: bool) -> None:
    first = {"tool_use_id": "a", "content": content, "is_error": False}
    last = {"content": content, "tool_use_id": "a"}
    for result in (first, last):
        other = {"tool_use_id": "b", "content": NOTICE}
        reader = read_for(conversation(other, result, other), "a", size=size)
        assert (reader.made, reader.answered) == ({"a"}, {"a"} if is_answered else set())
        assert reader.offers_tools and len(reader._string or b"") <= 512


def test_r1_the_first_request_of_the_agent_itself_must_hold_the_answers() -> None:
    good, missing = {"tool_use_id": "a", "content": "Blue"}, {"tool_use_id": "a", "content": NOTICE}

    def check(
        meter: RunMeter, body: dict[str, Any], session: str = "s", *, by_subagent: bool = False
    ) -> None:
        meter.check_answers(read_for(body, *meter.awaited), session_id=session, by_subagent=by_subagent)

    meter = RunMeter(session_id="s", awaited={"a"})
    check(meter, conversation(missing, tools=False))
    check(meter, conversation(missing), by_subagent=True)
    check(meter, conversation(missing), "another session")
    check(meter, {"messages": [], "tools": [TOOL]}, "")
    searching = {"messages": [], "tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    check(meter, searching)  # the program's own request, by which it carries out an approved WebSearch
    meter.check_answers(
        read_for(conversation(missing), "a"), session_id="s", by_subagent=False, asks_model=False
    )
    assert meter.awaited == {"a"}
    empty: dict[str, Any] = {"messages": [], "tools": [TOOL]}
    for body in (conversation(missing), conversation(), empty):
        with pytest.raises(Refused):
            check(meter, body)
    with pytest.raises(Refused):
        check(meter, conversation(missing), "")
    assert meter.unanswered == {"a"}
    check(meter, conversation(good))
    assert (meter.awaited, meter.unanswered) == (set(), set())
    check(meter, conversation(missing))

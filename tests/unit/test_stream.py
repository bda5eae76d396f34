"""Reading the agent's messages: all is kept, nothing is counted twice, nothing breaks it (H3, P8, P11)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tasks_app.agent.port import Ending
from tasks_app.agent.stream import (
    MOST_DOLLARS,
    MOST_TOKENS,
    Stream,
    parse_reset_time,
)
from tasks_app.core.types import Usage

RESET = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def assistant(*blocks: Any, identity: str = "msg_1", **body: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": identity, "content": list(blocks), **body}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str, identity: str = "toolu_1", **tool_input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": name, "input": tool_input}


def tool_result(content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}
    return {"type": "user", "message": {"content": [block]}}


def rate_limit(status: str, **info: Any) -> dict[str, Any]:
    return {"type": "rate_limit_event", "rate_limit_info": {"status": status, **info}}


def question(words: str) -> dict[str, Any]:
    return {"questions": [{"question": words, "header": "H", "options": [{"label": "a"}, {"label": "b"}]}]}


def read(*messages: dict[str, Any]) -> tuple[Stream, list[tuple[str, dict[str, Any]]]]:
    stream = Stream()
    return stream, [(event.kind, event.payload) for message in messages for event in stream.read(message)]


class TestEvents:
    def test_each_block_is_an_event_and_the_first_carries_the_message(self) -> None:
        message = assistant({"type": "thinking", "thinking": "Hm."}, text("Hi."), tool("Read", file_path="a"))
        events = Stream().read(message)
        assert [(event.kind, event.payload) for event in events] == [
            ("thinking", {"text": "Hm."}),
            ("text", {"text": "Hi."}),
            ("tool_use", {"id": "toolu_1", "name": "Read", "input": {"file_path": "a"}}),
        ]
        assert [event.raw for event in events] == [message, None, None]

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            ("plain", "plain"),
            ([text("one"), text("two")], "one\ntwo"),
            ([text("see"), {"type": "image", "source": {}}], "see\n[image]"),
            ([], ""),
            (None, ""),
            (7, ""),
            (["loose", text("one")], "one"),
        ],
    )
    def test_a_tool_result_is_shown_as_text(self, content: Any, shown: str) -> None:
        _, events = read(tool_result(content))
        assert events == [
            ("tool_result", {"tool_use_id": "toolu_1", "text": shown, "is_error": False}),
        ]

    @pytest.mark.parametrize(
        ("more", "good"), [({}, True), ({"is_error": False}, True), ({"is_error": True}, False)]
    )
    def test_it_is_known_which_results_came_and_which_were_errors(self, more: Any, good: bool) -> None:
        stream, _ = read(tool_result("x", **more))
        assert stream.results == {"toolu_1": good}

    def test_what_a_user_message_says_besides_is_kept(self) -> None:
        _, events = read({"type": "user", "message": {"content": "Go on."}})
        assert events == [("system", {"subtype": "user", "text": "Go on."})]

    def test_the_result_is_kept(self) -> None:
        message = {"type": "result", "subtype": "success", "result": "Done.", "num_turns": 2}
        stream, events = read(message)
        assert stream.result == message
        assert events[0][0] == "result" and events[0][1]["text"] == "Done."

    def test_the_model_is_the_one_named_last(self) -> None:
        stream, _ = read(
            {"type": "system", "subtype": "init", "model": "a"}, assistant(model="b"), assistant()
        )
        assert stream.model == "b"

    @pytest.mark.parametrize("kind", ["control_request", "telepathy", "", None, 7, ["list"]])
    def test_a_message_of_an_unknown_kind_is_kept(self, kind: Any) -> None:
        message = {"type": kind, "more": [1]}
        (event,) = Stream().read(message)
        assert (event.kind, event.payload, event.raw) == ("unknown", {"type": str(kind)}, message)

    def test_what_the_program_says_to_its_sdk_alone_is_not_kept(self) -> None:
        message = {"type": "system", "subtype": "session_state_changed", "state": "idle"}
        assert not Stream().read({**message, "sdk_host_only": True})
        (event,) = Stream().read(message)
        assert event.payload == {"subtype": "session_state_changed"}
        (event,) = Stream().read({"type": "telepathy", "sdk_host_only": True})
        assert event.kind == "unknown"

    def test_a_block_of_an_unknown_kind_is_an_event(self) -> None:
        _, events = read(assistant({"type": "hologram"}, text("Hi.")))
        assert events == [("unknown", {"type": "hologram"}), ("text", {"text": "Hi."})]

    @pytest.mark.parametrize(
        "message",
        [
            {},
            {"type": "assistant"},
            {"type": "assistant", "message": None},
            {"type": "assistant", "message": "words"},
            {"type": "assistant", "message": []},
            {"type": "assistant", "message": {"content": None}},
            {"type": "assistant", "message": {"content": 7}},
            {"type": "assistant", "message": {"content": ["loose", None, 7]}},
            {"type": "assistant", "message": {"content": [{}]}},
            {"type": "assistant", "message": {"content": [{"type": "tool_use"}]}},
            {
                "type": "assistant",
                "message": {"content": [{"type": "tool_use", "name": "Bash", "input": "x"}]},
            },
            {"type": "assistant", "message": {"content": [tool("AskUserQuestion", questions=7)]}},
            {"type": "assistant", "message": {"content": [tool("Bash", command=None)]}},
            {"type": "assistant", "message": {"content": [], "usage": [1]}},
            {"type": "user", "message": 7},
            {"type": "user", "message": {"content": [{"type": "tool_result"}]}},
            {"type": "rate_limit_event"},
            {"type": "rate_limit_event", "rate_limit_info": "soon"},
            {"type": "result"},
            {"type": "result", "deferred_tool_use": "toolu_1", "usage": 7},
            {"type": "system"},
        ],
        ids=str,
    )
    def test_a_malformed_or_empty_message_is_kept_and_breaks_nothing(self, message: dict[str, Any]) -> None:
        stream = Stream()
        assert stream.read(message)[0].raw == message
        stream.read(assistant(text("Still here.")))
        assert stream.text == "Still here."
        assert stream.usage(cost_before=0) == Usage()
        assert stream.deferred == ""


class TestAsks:
    def test_all_asks_of_a_message_are_seen_in_order(self) -> None:
        """The agent keeps only the last of them in its session."""
        stream, _ = read(
            assistant(
                tool("AskUserQuestion", "toolu_1", **question("A?")),
                tool("Write", "toolu_2", file_path="x"),
                tool("AskUserQuestion", "toolu_3", **question("B?")),
                tool("Bash", "toolu_4", command='cat-herder ask "C?"'),
            )
        )
        assert [ask.items[0].question for ask in stream.open_asks()] == ["A?", "B?", "C?"]
        assert [ask.tool_use_id for ask in stream.open_asks({"toolu_1"})] == ["toolu_3", "toolu_4"]

    def test_a_message_that_comes_twice_asks_once(self) -> None:
        message = assistant(tool("AskUserQuestion", **question("A?")))
        assert len(read(message, message)[0].open_asks()) == 1

    def test_an_ask_that_got_no_human_answer_is_open_however_it_ended(self) -> None:
        stream, _ = read(
            assistant(tool("AskUserQuestion", **question("A?"))), tool_result("hook failed", is_error=True)
        )
        assert len(stream.open_asks()) == 1

    @pytest.mark.parametrize(
        "told", ["InputValidationError: [too_big]", "Error: No such tool available: AskUserQuestion"]
    )
    def test_a_call_that_the_program_rejected_was_not_asked(self, told: str) -> None:
        """H3: the model asks anew, so the card of the rejected call would wait for nothing."""
        rejected = tool_result(f"<tool_use_error>{told}</tool_use_error>", is_error=True)
        stream, _ = read(assistant(tool("AskUserQuestion", **question("A?"))), rejected)
        assert stream.open_asks() == ()

    def test_an_ask_of_a_sub_agent_is_open_unless_the_agent_has_asked_since(self) -> None:
        """H3: it is told to hand its question back; the agent may not have passed it on."""
        own = [assistant(tool("AskUserQuestion", name, **question(name))) for name in ("A?", "B?")]
        command = tool("Bash", "toolu_2", command='cat-herder ask "C?"')
        of_subagent = {**assistant(command), "parent_tool_use_id": "toolu_9"}
        for messages, asked in (
            ([of_subagent], ["C?"]),
            ([own[0], of_subagent], ["A?", "C?"]),
            ([own[0], of_subagent, own[1]], ["A?", "B?"]),
        ):
            stream, _ = read(*messages)
            assert [ask.items[0].question for ask in stream.open_asks()] == asked

    def test_a_call_that_the_session_waits_at_again_is_an_ask(self) -> None:
        call = {"id": "toolu_9", "name": "AskUserQuestion", "input": question("A?")}
        stream, _ = read({"type": "result", "subtype": "success", "deferred_tool_use": call})
        assert stream.deferred == "toolu_9"
        assert [ask.tool_use_id for ask in stream.open_asks()] == ["toolu_9"]


class TestUsage:
    TOKENS = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 4,
    }

    def test_the_result_says_what_was_used(self) -> None:
        stream, _ = read(
            assistant(usage=self.TOKENS),
            {"type": "result", "usage": {**self.TOKENS, "input_tokens": 10}, "total_cost_usd": 0.5},
        )
        usage = stream.usage(cost_before=0.2)
        assert usage == Usage(10, 2, 3, 4, usage.cost_usd)
        assert usage.cost_usd == pytest.approx(0.3)

    def test_a_cost_is_never_negative(self) -> None:
        stream, _ = read({"type": "result", "usage": self.TOKENS, "total_cost_usd": 0.1})
        assert stream.usage(cost_before=0.2).cost_usd == 0.0

    def test_without_a_result_it_is_summed_once_for_each_message_of_the_model(self) -> None:
        """P11: nothing lost when a run ends early. One message of the model comes in several parts."""
        stream, _ = read(
            assistant(text("part one"), identity="msg_1", usage=self.TOKENS),
            assistant(text("part two"), identity="msg_1", usage={**self.TOKENS, "output_tokens": 20}),
            assistant(text("next"), identity="msg_2", usage=self.TOKENS),
        )
        assert stream.usage(cost_before=0.2) == Usage(2, 22, 6, 8, 0.0)

    @pytest.mark.parametrize("count", [None, "7", -7, 1.5, [7]])
    def test_a_count_that_is_none_counts_as_nothing(self, count: Any) -> None:
        stream, _ = read(assistant(usage={**self.TOKENS, "input_tokens": count}))
        assert stream.usage(cost_before=0) == Usage(0, 2, 3, 4, 0.0)

    @pytest.mark.parametrize("cost", ["much", None, [], {}])
    def test_a_cost_that_is_none_counts_as_nothing(self, cost: Any) -> None:
        stream, _ = read({"type": "result", "usage": self.TOKENS, "total_cost_usd": cost})
        assert stream.usage(cost_before=0) == Usage(1, 2, 3, 4, 0.0)


class TestLimits:
    def test_a_rejection_has_its_reset_time(self) -> None:
        stream, _ = read(rate_limit("rejected", resetsAt=RESET.timestamp()))
        assert stream.rejected and stream.rejected_until == RESET
        assert stream.ending(())[0] is Ending.LIMIT

    @pytest.mark.parametrize("status", ["allowed", "allowed_warning"])
    def test_a_warning_is_no_rejection(self, status: str) -> None:
        stream, events = read(rate_limit(status, resetsAt=RESET.timestamp()))
        assert not stream.rejected and stream.rejected_until is None
        assert events[0][1]["status"] == status

    def test_h8_what_matters_to_people_is_a_note_once(self) -> None:
        warning = rate_limit("allowed_warning", rateLimitType="seven_day", utilization=0.82)
        _, events = read(rate_limit("allowed"), warning, warning, rate_limit("allowed"))
        assert [kind for kind, _ in events] == ["system", "note", "system", "system"]
        assert events[1][1]["text"] == "82% of the weekly usage limit is used."
        _, (event,) = read(rate_limit("rejected", rateLimitType="five_hour", resetsAt=RESET.timestamp()))
        assert event[1]["text"] == "The 5-hour usage limit is used up. It resets at 2026-11-21 14:00 UTC."
        _, (event,) = read(rate_limit("rejected", rateLimitType="five_hour", isUsingOverage=True))
        assert "Extra usage is being charged" in event[1]["text"]

    @pytest.mark.parametrize("used", ["much", None, [], float("nan"), -1, 1e300])
    def test_a_share_that_is_none_is_left_out(self, used: Any) -> None:
        _, (event,) = read(rate_limit("allowed_warning", utilization=used))
        assert event[1]["text"] == "Most of the usage limit is used."

    @pytest.mark.parametrize(
        "result",
        [
            {"subtype": "success", "is_error": False},
            {"subtype": "error_max_turns", "is_error": True},
            {"subtype": "error_max_budget_usd", "is_error": True},
            {"subtype": "success", "is_error": True, "api_error_status": 400},
        ],
    )
    def test_p8_a_rejection_on_the_way_does_not_outrank_the_result(self, result: dict[str, Any]) -> None:
        stream, _ = read(rate_limit("rejected", resetsAt=RESET.timestamp()), {"type": "result", **result})
        assert stream.ending(())[0] is (Ending.FAILED if result["is_error"] else Ending.FINISHED)

    def test_p8_a_rejection_that_was_lifted_does_not_count(self) -> None:
        stream, _ = read(rate_limit("rejected", resetsAt=RESET.timestamp()), rate_limit("allowed"))
        assert stream.ending(())[0] is Ending.FAILED and stream.rejected_until is None

    def test_p8_an_error_after_a_rejection_is_the_limit(self) -> None:
        error = {"type": "result", "subtype": "success", "is_error": True, "result": "You've hit your limit"}
        stream, _ = read(rate_limit("rejected", resetsAt=RESET.timestamp()), error)
        assert stream.ending(()) == (Ending.LIMIT, "You've hit your limit")

    @pytest.mark.parametrize("stamp", [RESET.timestamp(), int(RESET.timestamp()), RESET.timestamp() * 1000])
    def test_a_reset_time_may_be_in_seconds_or_milliseconds(self, stamp: float) -> None:
        assert parse_reset_time(stamp) == RESET

    @pytest.mark.parametrize(
        "stamp", [None, "soon", "1795269600", True, 0, -5, [], float("nan"), float("inf"), 1e30]
    )
    def test_garbage_is_no_reset_time(self, stamp: Any) -> None:
        assert parse_reset_time(stamp) is None

    @pytest.mark.parametrize("stamp", [1e30, float("nan")])
    def test_a_rejection_stays_one_when_its_time_is_garbage(self, stamp: float) -> None:
        """P8"""
        assert read(rate_limit("rejected", resetsAt=stamp))[0].rejected


class TestEnding:
    LIMIT = {"type": "result", "is_error": True, "api_error_status": 429, "result": "Request rejected"}

    @pytest.mark.parametrize(
        ("message", "problem", "ending", "said"),
        [
            ({"type": "result", "subtype": "success"}, "", Ending.FINISHED, ""),
            (LIMIT, "", Ending.LIMIT, "Request rejected"),
            ({"type": "result", "subtype": "error_max_turns"}, "", Ending.FAILED, "error_max_turns"),
            ({"type": "result", "is_error": True, "errors": ["a", "b"]}, "", Ending.FAILED, "a\nb"),
            ({"type": "result", "subtype": "success"}, "It broke.", Ending.FAILED, "It broke."),
            ({"type": "result", "subtype": "success", "stop_reason": "refusal"}, "", Ending.REFUSED, ""),
            ({**LIMIT, "stop_reason": "refusal"}, "", Ending.REFUSED, "Request rejected"),
            (
                {
                    "type": "result",
                    "is_error": True,
                    "terminal_reason": "prompt_too_long",
                    "result": "Too long",
                },
                "",
                Ending.TOO_LONG,
                "Too long",
            ),
            (
                {"type": "result", "is_error": True, "result": "Prompt is too long"},
                "",
                Ending.TOO_LONG,
                "Prompt",
            ),
            ({"type": "result", "result": "Prompt is too long"}, "", Ending.FINISHED, ""),
            ({"type": "system"}, "", Ending.FAILED, "without a result"),
            ({"type": "system"}, "It broke.", Ending.FAILED, "It broke."),
        ],
    )
    def test_how_a_run_ended(self, message: dict[str, Any], problem: str, ending: Ending, said: str) -> None:
        how, why = read(message)[0].ending((), problem=problem)
        assert how is ending and said in why

    def test_who_asked_has_asked_whatever_came_after(self) -> None:
        """H3: a question just before the end of the turn, or before a crash, is not lost."""
        stream, _ = read(assistant(tool("AskUserQuestion", **question("A?"))), self.LIMIT)
        assert stream.ending(stream.open_asks(), problem="It broke.")[0] is Ending.ASKED


class TestForgedNumbers:
    """Whatever number a message claims, rows, sums and pages can hold what is made of it."""

    KEYS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    NO_NUMBERS = (-1, -(10**30), float("nan"), float("-inf"), True, "12", [1], {"a": 1}, None)

    @pytest.mark.parametrize("claimed", [10**12 + 1, 10**18, 10**30])
    def test_a_count_beyond_reason_is_the_greatest_that_there_is(self, claimed: int) -> None:
        stream, _ = read({"type": "result", "usage": dict.fromkeys(self.KEYS, claimed)})
        assert stream.usage(cost_before=0) == Usage(MOST_TOKENS, MOST_TOKENS, MOST_TOKENS, MOST_TOKENS)

    @pytest.mark.parametrize("claimed", [1e300, float("inf"), 10**400])
    def test_so_are_dollars(self, claimed: float) -> None:
        stream, events = read({"type": "result", "usage": {}, "total_cost_usd": claimed})
        assert stream.usage(cost_before=0).cost_usd == MOST_DOLLARS
        assert events[0][1]["cost_usd"] == MOST_DOLLARS

    @pytest.mark.parametrize("claimed", NO_NUMBERS)
    def test_a_value_that_is_not_a_number_counts_as_zero(self, claimed: Any) -> None:
        told = {"total_cost_usd": claimed, "num_turns": claimed, "duration_ms": claimed}
        stream, events = read({"type": "result", "usage": dict.fromkeys(self.KEYS, claimed), **told})
        assert stream.usage(cost_before=0) == Usage()
        assert {events[0][1][name] for name in ("cost_usd", "num_turns", "duration_ms")} <= {0, None}

    def test_many_great_messages_add_up_to_no_more(self) -> None:
        usage = dict.fromkeys(self.KEYS, 10**12)
        stream, _ = read(*(assistant(identity=str(number), usage=usage) for number in range(50)))
        assert stream.usage(cost_before=0) == Usage(MOST_TOKENS, MOST_TOKENS, MOST_TOKENS, MOST_TOKENS)


@pytest.mark.parametrize("kind", ["command_lifecycle", "keep_alive", "tool_progress"])
def test_what_the_program_says_of_itself_is_not_unknown(kind: str) -> None:
    """H8: the logs do not show it as something that nobody knows."""
    message = {"type": kind, "state": "queued"}
    (event,) = Stream().read(message)
    assert (event.kind, event.payload, event.raw) == ("system", {"subtype": kind}, message)


def test_what_the_program_says_in_the_models_place_is_of_no_model() -> None:
    """P11: no model of that name in any statistics."""
    stream = Stream()
    stream.read({"type": "system", "subtype": "init", "model": "claude-opus-5-5"})
    made = {"id": "m", "model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}
    stream.read({"type": "assistant", "message": made})
    assert (stream.model, stream.text) == ("claude-opus-5-5", "API Error")


def test_a_refusal_by_the_portal_is_no_word_of_the_agent() -> None:
    stream, words = Stream(), "Refused by the portal: A budget for this month is spent."
    told = f'API Error: 402 {{"type":"error","error":{{"type":"billing_error","message":"{words}"}}}}'
    made = {"id": "m", "model": "<synthetic>", "content": [{"type": "text", "text": told}]}
    (said,) = stream.read({"type": "assistant", "message": made})
    assert (said.kind, said.payload["text"]) == ("note", words)
    ended = {"type": "result", "subtype": "success", "is_error": True, "result": told}
    (end,) = stream.read(ended)
    assert end.payload["text"] == words and stream.ending(()) == (Ending.FAILED, words)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"subtype": "model_fallback", "content": "Sonnet goes on."}, "Sonnet goes on."),
        (
            {
                "subtype": "model_refusal_fallback",
                "original_model": "a",
                "fallback_model": "b",
                "content": "",
            },
            "The model a was replaced by b (model_refusal_fallback).",
        ),
        (
            {"subtype": "model_refusal_no_fallback", "original_model": "a", "api_refusal_category": "cyber"},
            "The model a refused to answer (category: cyber).",
        ),
        ({"subtype": "informational", "level": "warning", "content": "Look."}, "Look."),
        ({"subtype": "informational", "level": "info", "content": "Look."}, None),
        (
            {"subtype": "api_retry", "attempt": 1, "max_retries": 10, "error_status": None},
            "The model's API sent no whole answer. Retry 1 of 10 follows.",
        ),
        ({"subtype": "compact_boundary"}, "replaced its beginning by a summary"),
        ({"subtype": "status", "compact_result": "failed", "compact_error": "empty"}, "empty"),
        ({"subtype": "status", "compact_result": "success"}, None),
        ({"subtype": ["odd"], "content": 7}, None),
    ],
)
def test_h8_what_concerns_people_is_a_note_with_its_words(message: dict[str, Any], words: str | None) -> None:
    _, ((kind, payload),) = read({"type": "system", **message})
    assert kind == ("note" if words else "system")
    assert (words or "") in payload.get("text", "")

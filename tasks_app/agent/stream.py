"""Reading the agent's message stream: raw JSON messages in, events and the end of the run out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tasks_app.agent.gate.hook import BROKEN
from tasks_app.agent.port import AgentEvent, Ending
from tasks_app.agent.questions import ask_from_call
from tasks_app.core.types import Ask, Usage

Message = Mapping[str, Any]

#: Later than this a reset time given in seconds would be in the year 5138: it is in milliseconds.
MILLISECONDS = 100_000_000_000

#: What no run comes near, and what every column, sum and page can hold. The messages are written in the
#: sandbox: a number in them may be of any size and kind.
MOST_TOKENS = 10**12
MOST_DOLLARS = 1_000_000.0


#: Messages in which the program speaks of itself; nothing of them concerns the work.
HOUSEKEEPING = (
    *("auth_status", "command_lifecycle", "keep_alive"),
    *("prompt_suggestion", "tool_progress", "tool_use_summary"),
)


@dataclass
class Stream:
    """What is known of a run so far; `read` takes one message and gives the events in it.

    All tool-use blocks are read: of two asks in one message the CLI keeps only the last. Messages of a
    kind that is not known are kept as events and otherwise ignored.
    """

    asks: dict[str, Ask] = field(default_factory=dict)
    calls: dict[str, Message] = field(default_factory=dict)
    unjudged: set[str] = field(default_factory=set)
    results: dict[str, bool] = field(default_factory=dict)
    result: Message | None = None
    model: str = ""
    rejected_until: datetime | None = None
    rejected: bool = False
    text: str = ""
    _usage_by_message: dict[str, Message] = field(default_factory=dict)

    def read(self, message: Message) -> list[AgentEvent]:
        at = datetime.now(UTC)
        kinds = {
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
            "system": self._system,
            "rate_limit_event": self._rate_limit,
            **dict.fromkeys(HOUSEKEEPING, self._housekeeping),
        }
        reader = kinds.get(str(message.get("type")), self._unknown)
        try:
            found = list(reader(message))
        except (AttributeError, TypeError, ValueError):
            found = []
        # Of a known kind, but not of its shape, or with nothing in it: kept all the same.
        found = found or list(self._unknown(message))
        raws = [message] + [None] * (len(found) - 1)  # the raw message stands at the first of its events
        return [AgentEvent(kind, payload, at, raw) for (kind, payload), raw in zip(found, raws, strict=True)]

    def _assistant(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        body = message.get("message") or {}
        self._note_model(body)
        if isinstance(body.get("usage"), dict):
            self._usage_by_message[str(body.get("id"))] = body["usage"]
        for block in _blocks(body):
            yield self._block(block)

    def _block(self, block: Message) -> tuple[str, dict[str, Any]]:
        kind = block.get("type")
        if kind == "text":
            self.text = str(block.get("text", ""))
            return "text", {"text": self.text}
        if kind == "thinking":
            return "thinking", {"text": str(block.get("thinking", ""))}
        if kind == "tool_use":
            tool_input = block.get("input")
            tool_input = tool_input if isinstance(tool_input, dict) else {}
            identity, name = str(block.get("id")), str(block.get("name"))
            self.calls[identity] = tool_input
            ask = ask_from_call(identity, name, tool_input)
            if ask:
                self.asks[identity] = ask
            return "tool_use", {"id": identity, "name": name, "input": tool_input}
        return "unknown", {"type": str(kind)}

    def _user(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        for block in _blocks(message.get("message") or {}):
            if block.get("type") == "tool_result":
                identity, is_error = str(block.get("tool_use_id")), block.get("is_error") is True
                self.results[identity] = not is_error
                text = _text_of(block.get("content"))
                if is_error and BROKEN in text:
                    self.unjudged.add(identity)
                yield "tool_result", {"tool_use_id": identity, "text": text, "is_error": is_error}
            else:
                yield "system", {"subtype": "user", "text": str(block.get("text", ""))}

    def _result(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        self.result = message
        self._waits_at(message.get("deferred_tool_use"))
        yield (
            "result",
            {
                "subtype": message.get("subtype"),
                "is_error": message.get("is_error") is True,
                "stop_reason": message.get("stop_reason"),
                "text": str(message.get("result") or ""),
                "duration_ms": _if_told(_count, message.get("duration_ms")),
                "num_turns": _if_told(_count, message.get("num_turns")),
                "cost_usd": _if_told(_dollars, message.get("total_cost_usd")),
            },
        )

    def _waits_at(self, call: Any) -> None:
        """A call deferred once more, which the stream does not show again, is an ask all the same."""
        if isinstance(call, dict) and isinstance(call.get("input"), dict):
            identity = str(call.get("id"))
            ask = ask_from_call(identity, str(call.get("name")), call["input"])
            if ask:
                self.asks.setdefault(identity, ask)

    def _system(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        self._note_model(message)
        yield "system", {"subtype": str(message.get("subtype", ""))}

    def _note_model(self, message: Message) -> None:
        """What the program itself says in the model's place is of no model: it is marked as `<synthetic>`."""
        model = str(message.get("model") or "")
        if model and not model.startswith("<"):
            self.model = model

    def _housekeeping(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "system", {"subtype": str(message.get("type"))}

    def _rate_limit(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        info = message.get("rate_limit_info") or {}
        if info.get("status") == "rejected":
            self.rejected = True
            self.rejected_until = moment(info.get("resetsAt", info.get("resets_at")))
        yield "system", {"subtype": "rate_limit_event", "status": info.get("status")}

    def _unknown(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "unknown", {"type": str(message.get("type"))}

    @property
    def deferred(self) -> str:
        """The tool_use_id at which the session waits, if it does."""
        call = (self.result or {}).get("deferred_tool_use")
        return str(call.get("id", "")) if isinstance(call, dict) else ""

    @property
    def waiting_call(self) -> tuple[str, Message] | None:
        """The name and the input of the call at which the session waits, if it does."""
        call = (self.result or {}).get("deferred_tool_use")
        if not isinstance(call, dict):
            return None
        given = call.get("input")
        return str(call.get("name")), given if isinstance(given, dict) else {}

    @property
    def vanished(self) -> list[str]:
        """Calls of the last message that were not made, beside the one that waits: the CLI drops them."""
        return (
            [one for one in self.calls if one not in self.results and one != self.deferred]
            if self.deferred
            else []
        )

    def open_asks(self, decided: Container[str] = ()) -> tuple[Ask, ...]:
        """What the agent asked, in order, without the calls that had a human's decision.

        An ask that got some other result (its hook broke, say) was not answered, so it is open.
        """
        return tuple(ask for identity, ask in self.asks.items() if identity not in decided)

    def ending(self, asks: Sequence[Ask], *, problem: str = "") -> tuple[Ending, str]:
        """How the run ended, and why if badly; `problem` is what went wrong outside the stream."""
        result = self.result or {}
        if asks or self.deferred:
            return Ending.ASKED, problem
        if self.rejected or (result.get("is_error") and result.get("api_error_status") == 429):
            return Ending.LIMIT, str(result.get("result") or "A usage limit was reached.")
        if self.failed:
            return Ending.FAILED, _reported(result)
        if problem:
            return Ending.FAILED, problem
        if not result:
            return Ending.FAILED, "The agent's process ended without a result."
        return Ending.FINISHED, ""

    @property
    def failed(self) -> bool:
        """Whether the program itself reported a failure."""
        result = self.result or {}
        return bool(result.get("is_error")) or result.get("subtype", "success") != "success"

    @property
    def is_silent(self) -> bool:
        """Whether neither the agent nor one of its tools said anything."""
        return not (self.text or self.calls or self.results or self._usage_by_message)

    def usage(self, *, cost_before: float) -> Usage:
        """What this run used: as its result says, else summed over the messages that came."""
        if self.result is not None and isinstance(self.result.get("usage"), dict):
            cost = _dollars(self.result.get("total_cost_usd"))
            return _usage(self.result["usage"], max(0.0, cost - cost_before))
        total = Usage()
        for usage in self._usage_by_message.values():
            one = _usage(usage, 0.0)
            total = Usage(
                min(MOST_TOKENS, total.input_tokens + one.input_tokens),
                min(MOST_TOKENS, total.output_tokens + one.output_tokens),
                min(MOST_TOKENS, total.cache_write_tokens + one.cache_write_tokens),
                min(MOST_TOKENS, total.cache_read_tokens + one.cache_read_tokens),
            )
        return total


def _reported(result: Message) -> str:
    errors = result.get("errors")
    detail = "\n".join(map(str, errors)) if isinstance(errors, list) else ""
    return str(result.get("result") or detail or f"The agent reported {result.get('subtype')}.")


def _blocks(body: Message) -> list[Message]:
    content = body.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text_of(content: Any) -> str:
    """The readable text of a tool result, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(block.get("text", "")) if block.get("type") == "text" else f"[{block.get('type')}]"
        for block in content
        if isinstance(block, dict)
    )


def _usage(usage: Message, cost: float) -> Usage:
    return Usage(
        _count(usage.get("input_tokens")),
        _count(usage.get("output_tokens")),
        _count(usage.get("cache_creation_input_tokens")),
        _count(usage.get("cache_read_input_tokens")),
        cost,
    )


def _if_told(read: Callable[[Any], float], value: Any) -> float | None:
    return None if value is None else read(value)


def _count(value: Any) -> int:
    """A whole number from 0 to `MOST_TOKENS`; 0 for anything that is no such number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return 0
    return min(value, MOST_TOKENS)


def _dollars(value: Any) -> float:
    """A sum from 0 to `MOST_DOLLARS`; 0 for anything that is no such number, NaN included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return 0.0
    return float(min(value, MOST_DOLLARS))


def moment(stamp: Any) -> datetime | None:
    """A reset time in seconds, or by mistake in milliseconds, since 1970; None for what is no time."""
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or stamp <= 0:
        return None
    try:
        return datetime.fromtimestamp(stamp / 1000 if stamp >= MILLISECONDS else stamp, UTC)
    except (ValueError, OverflowError, OSError):
        return None

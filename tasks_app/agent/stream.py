"""Reading the agent's message stream: from raw JSON messages to events and the end of the run. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tasks_app.agent.gate.hook import BROKEN
from tasks_app.agent.notices import error_words, limit_words, notice_words
from tasks_app.agent.port import AgentEvent, Ending
from tasks_app.agent.questions import ask_from_call
from tasks_app.agent.tools import REJECTED
from tasks_app.core.types import Ask, Usage

Message = Mapping[str, Any]

#: A reset time from this on is in milliseconds: in seconds it would be in the year 5138.
MILLISECONDS = 100_000_000_000

#: Limits that no run reaches, and that every column, sum and page can hold. The messages come from the
#: sandbox, so a number in them may be of any size and kind.
MOST_TOKENS = 10**12
MOST_DOLLARS = 1_000_000.0

#: Terminal reasons of a session that does not fit into the model's context.
TOO_LONG = ("prompt_too_long", "blocking_limit")
#: Subtypes of results of runs that ended at a limit that the portal had set.
ENDED_BY_OWN_LIMIT = ("error_max_turns", "error_max_budget_usd")

#: Messages about the program itself; they do not concern the work.
HOUSEKEEPING = (
    *("auth_status", "command_lifecycle", "keep_alive"),
    *("prompt_suggestion", "tool_progress", "tool_use_summary"),
)


@dataclass
class Stream:
    """The state of a run so far. `read` takes one message and returns its events.

    All tool-use blocks are read, because the CLI keeps only the last of two asks in one message. Messages of
    an unknown type become events and are otherwise ignored. `unjudged` are the calls that a broken gate
    blocked, `of_subagents` those that sub-agents made; `results` says of each finished call whether it
    succeeded.
    """

    asks: dict[str, Ask] = field(default_factory=dict)
    calls: dict[str, Message] = field(default_factory=dict)
    unjudged: set[str] = field(default_factory=set)
    of_subagents: set[str] = field(default_factory=set)
    results: dict[str, bool] = field(default_factory=dict)
    result: Message | None = None
    model: str = ""
    rejected_until: datetime | None = None
    rejected: bool = False
    text: str = ""
    _last_notice: str = ""
    _usage_by_message: dict[str, Message] = field(default_factory=dict)

    def read(self, message: Message) -> list[AgentEvent]:
        if message.get("sdk_host_only") is True and message.get("subtype") == "session_state_changed":
            return []  # sent only because the SDK asked for it
        at = datetime.now(UTC)
        readers = {
            "assistant": self._read_assistant,
            "user": self._read_user,
            "result": self._read_result,
            "system": self._read_system,
            "rate_limit_event": self._read_rate_limit,
            **dict.fromkeys(HOUSEKEEPING, self._read_housekeeping),
        }
        reader = readers.get(str(message.get("type")), self._read_unknown)
        try:
            found = list(reader(message))
        except (AttributeError, TypeError, ValueError):
            found = []
        # A message of a known type with an unexpected shape, or without content, is stored all the same.
        found = found or list(self._read_unknown(message))
        raws = [message] + [None] * (len(found) - 1)  # the first event carries the raw message
        return [AgentEvent(kind, payload, at, raw) for (kind, payload), raw in zip(found, raws, strict=True)]

    def _read_assistant(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        body = message.get("message") or {}
        self._note_model(body)
        if isinstance(body.get("usage"), dict):
            self._usage_by_message[str(body.get("id"))] = body["usage"]
        is_synthetic = str(body.get("model") or "").startswith("<")
        for block in _blocks(body):
            kind, payload = self._read_block(block)
            if is_synthetic and kind == "text":
                self.text = error_words(self.text)
                kind, payload = "note", {"subtype": "synthetic", "text": self.text}
            if kind == "tool_use" and message.get("parent_tool_use_id"):
                self.of_subagents.add(payload["id"])
            yield kind, payload

    def _read_block(self, block: Message) -> tuple[str, dict[str, Any]]:
        kind = block.get("type")
        if kind == "text":
            self.text = str(block.get("text", ""))
            return "text", {"text": self.text}
        if kind == "thinking":
            return "thinking", {"text": str(block.get("thinking", ""))}
        if kind == "tool_use":
            call_id, name, tool_input = str(block.get("id")), str(block.get("name")), block.get("input")
            if not isinstance(tool_input, dict):
                tool_input = {}
            self.calls[call_id] = tool_input
            ask = ask_from_call(call_id, name, tool_input)
            if ask:
                self.asks[call_id] = ask
            return "tool_use", {"id": call_id, "name": name, "input": tool_input}
        return "unknown", {"type": str(kind)}

    def _read_user(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        for block in _blocks(message.get("message") or {}):
            if block.get("type") == "tool_result":
                call_id, is_error = str(block.get("tool_use_id")), block.get("is_error") is True
                self.results[call_id] = not is_error
                text = _result_text(block.get("content"))
                if is_error and BROKEN in text:
                    self.unjudged.add(call_id)
                if is_error and text.startswith(REJECTED):
                    self.asks.pop(call_id, None)
                yield "tool_result", {"tool_use_id": call_id, "text": text, "is_error": is_error}
            else:
                yield "system", {"subtype": "user", "text": str(block.get("text", ""))}

    def _read_result(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        self.result = message
        deferred = message.get("deferred_tool_use")
        if isinstance(deferred, dict) and isinstance(deferred.get("input"), dict):
            # The stream does not show a call again that was deferred once more, but it may be an ask.
            call_id = str(deferred.get("id"))
            ask = ask_from_call(call_id, str(deferred.get("name")), deferred["input"])
            if ask:
                self.asks.setdefault(call_id, ask)
        text = str(message.get("result") or "")
        yield (
            "result",
            {
                "subtype": message.get("subtype"),
                "is_error": message.get("is_error") is True,
                "stop_reason": message.get("stop_reason"),
                "new_session": self.refused or self.too_long,
                "text": error_words(text) if message.get("is_error") is True else text,
                "duration_ms": _unless_none(_bounded_number, message.get("duration_ms")),
                "num_turns": _unless_none(_bounded_number, message.get("num_turns")),
                "cost_usd": _unless_none(_dollars, message.get("total_cost_usd")),
            },
        )

    def _read_system(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        self._note_model(message)
        subtype = str(message.get("subtype", ""))
        words = notice_words(message)
        if words:
            yield "note", {"subtype": subtype, "text": words}
        else:
            yield "system", {"subtype": subtype}

    def _note_model(self, message: Message) -> None:
        """Store the model's name. Messages that the program itself wrote are marked as `<synthetic>`."""
        model = str(message.get("model") or "")
        if model and not model.startswith("<"):
            self.model = model

    def _read_housekeeping(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "system", {"subtype": str(message.get("type"))}

    def _read_rate_limit(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        """Note the state of the subscription's limits. The last one counts: a rejection may be lifted."""
        info = message.get("rate_limit_info") or {}
        status = info.get("status")
        resets_at = parse_reset_time(info.get("resetsAt", info.get("resets_at")))
        self.rejected = status == "rejected"
        self.rejected_until = resets_at if self.rejected else None
        words = limit_words(info, resets_at)
        if words and words != self._last_notice:
            yield "note", {"subtype": "rate_limit_event", "status": status, "text": words}
        else:
            yield "system", {"subtype": "rate_limit_event", "status": status}
        self._last_notice = words

    def _read_unknown(self, message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "unknown", {"type": str(message.get("type"))}

    @property
    def deferred(self) -> str:
        """The tool_use_id at which the session waits, or ""."""
        call = (self.result or {}).get("deferred_tool_use")
        return str(call.get("id", "")) if isinstance(call, dict) else ""

    @property
    def waiting_call(self) -> tuple[str, Message] | None:
        """Name and input of the call at which the session waits, if it does."""
        call = (self.result or {}).get("deferred_tool_use")
        if not isinstance(call, dict):
            return None
        given = call.get("input")
        return str(call.get("name")), given if isinstance(given, dict) else {}

    @property
    def dropped_calls(self) -> list[str]:
        """Calls of the last message that were not made because another one waits: the CLI drops them."""
        if not self.deferred:
            return []
        return [call for call in self.calls if call not in self.results and call != self.deferred]

    def open_asks(self, decided: Container[str] = ()) -> tuple[Ask, ...]:
        """Return the agent's asks in order, without those that a human has answered.

        An ask with another result (for example because its hook broke) was not answered, so it is open. One
        that the agent's program rejected was not asked. A sub-agent hands its asks back to the agent, so they
        are open only if the agent has asked nothing since.
        """
        found: list[Ask] = []
        has_asked = False
        for call_id, ask in reversed(self.asks.items()):
            is_handed_back = call_id in self.of_subagents
            has_asked = has_asked or not is_handed_back
            if call_id not in decided and not (is_handed_back and has_asked):
                found.insert(0, ask)
        return tuple(found)

    def ending(self, asks: Sequence[Ask], *, problem: str = "") -> tuple[Ending, str]:
        """Return how the run ended, and why if it failed; `problem` is what went wrong outside the stream."""
        result = self.result or {}
        if asks or self.deferred:
            return Ending.ASKED, problem
        if self.refused:
            return Ending.REFUSED, _reported_error(result)
        if self.too_long:
            return Ending.TOO_LONG, _reported_error(result)
        if self._hit_limit:
            return Ending.LIMIT, str(result.get("result") or "A usage limit was reached.")
        if self.failed:
            return Ending.FAILED, _reported_error(result)
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
    def refused(self) -> bool:
        """Whether the model refused to go on, and nothing followed."""
        return (self.result or {}).get("stop_reason") == "refusal"

    @property
    def too_long(self) -> bool:
        """Whether the session exceeds the model's context, so that it cannot continue."""
        result = self.result or {}
        if not result.get("is_error"):
            return False
        reported = str(result.get("result") or "")
        return result.get("terminal_reason") in TOO_LONG or reported.startswith("Prompt is too long")

    @property
    def _hit_limit(self) -> bool:
        """Whether a usage limit ended the run. A notice of a limit does not count if the run went on."""
        result = self.result
        if result is None:
            return self.rejected
        if not result.get("is_error") or result.get("subtype") in ENDED_BY_OWN_LIMIT:
            return False
        status = result.get("api_error_status")
        return status == 429 or (status is None and self.rejected)

    @property
    def out_of_turns(self) -> bool:
        """Whether the run ended because it had taken all its turns."""
        return (self.result or {}).get("subtype") == "error_max_turns"

    @property
    def reached_cost_limit(self) -> bool:
        """Whether the run ended because it had cost what the agent was allowed to spend."""
        return (self.result or {}).get("subtype") == "error_max_budget_usd"

    @property
    def is_silent(self) -> bool:
        """Whether there was no output of the agent or of its tools."""
        return not (self.text or self.calls or self.results or self._usage_by_message)

    def usage(self, *, cost_before: float) -> Usage:
        """Return what this run used according to its result or, without one, summed over its messages."""
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


def _reported_error(result: Message) -> str:
    errors = result.get("errors")
    detail = "\n".join(map(str, errors)) if isinstance(errors, list) else ""
    said = str(result.get("result") or detail or f"The agent reported {result.get('subtype')}.")
    return error_words(said)


def _blocks(body: Message) -> list[Message]:
    content = body.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return []


def _result_text(content: Any) -> str:
    """Return the readable text of a tool result, which is a string or a list of blocks."""
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
        _bounded_number(usage.get("input_tokens")),
        _bounded_number(usage.get("output_tokens")),
        _bounded_number(usage.get("cache_creation_input_tokens")),
        _bounded_number(usage.get("cache_read_input_tokens")),
        cost,
    )


def _unless_none(parse: Callable[[Any], float], value: Any) -> float | None:
    return None if value is None else parse(value)


def _bounded_number(value: Any) -> int:
    """Return a whole number from 0 to `MOST_TOKENS`; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return 0
    return min(value, MOST_TOKENS)


def _dollars(value: Any) -> float:
    """Return an amount from 0 to `MOST_DOLLARS`; 0 for anything else, NaN included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return 0.0
    return float(min(value, MOST_DOLLARS))


def parse_reset_time(stamp: Any) -> datetime | None:
    """Parse seconds, or by mistake milliseconds, since 1970. Return None for anything else."""
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or stamp <= 0:
        return None
    try:
        return datetime.fromtimestamp(stamp / 1000 if stamp >= MILLISECONDS else stamp, UTC)
    except (ValueError, OverflowError, OSError):
        return None

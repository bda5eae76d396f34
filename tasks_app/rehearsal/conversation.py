"""Read the conversation so far from a request to the Messages API. The server has no other state."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks_app.agent.tools import was_broken_off
from tasks_app.core.errors import BadInput
from tasks_app.rehearsal.scenario import questions_of

# Text of the message that the agent program inserts after an aborted turn.
_SYNTHETIC = "No response requested."
_WORKSPACE = re.compile(r"[Ww]orking directory: *([^\n<]+)")
_SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SECTION = re.compile(r"^--- (.+) ---$", re.MULTILINE)
_QUOTE_MARK = re.compile(r"^ *> ?", re.MULTILINE)
_ANSWER_SECTIONS = frozenset({"HUMAN INTERACTION HISTORY", "FEEDBACK"})


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)  # extra fields count for the token estimates


class Block(_Part):
    """One content block: text, tool_use or tool_result; other types are ignored."""

    type: str = "text"
    text: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = Field(default_factory=dict)
    tool_use_id: str = ""
    content: str | list[Block] = ""

    @property
    def whole_text(self) -> str:
        """The text of the block and of what it contains."""
        return self.text + _text_of(self.content)


class Message(_Part):
    """One message; a plain string as content means one text block."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    @property
    def blocks(self) -> list[Block]:
        if isinstance(self.content, str):
            return [Block(text=self.content)]
        return self.content


class Tool(_Part):
    """A tool that the agent program offers to the model."""

    name: str = ""


class Metadata(_Part):
    """The agent program's metadata; `user_id` carries the session's id."""

    user_id: str = ""


class Conversation(_Part):
    """A request to the Messages API."""

    model: str
    messages: list[Message] = Field(min_length=1)
    system: str | list[Block] = ""
    tools: list[Tool] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=Metadata)
    stream: bool = False

    @cached_property
    def prompt(self) -> str:
        """The text of the first user message, without the reminders that the agent program adds."""
        texts: list[str] = []
        first = next((message for message in self.messages if message.role == "user"), None)
        if first:
            texts = [block.text for block in first.blocks if block.type == "text"]
        return "\n".join(text for text in texts if not text.startswith("<system-reminder>"))

    @cached_property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools that the model may call."""
        return frozenset(tool.name for tool in self.tools)

    @cached_property
    def workspace(self) -> str:
        """The agent's working directory according to the system prompt, or "."."""
        system = [message.content for message in self.messages if message.role == "system"]
        reminders = [message.content for message in self.messages[:1]]
        for content in [self.system, *system, *reminders]:
            found = _WORKSPACE.search(_text_of(content))
            if found:
                return found[1].strip()
        return "."

    @cached_property
    def fingerprint(self) -> str:
        """A hash that identifies this conversation in all its turns."""
        session = "".join(_SESSION.findall(self.metadata.user_id)[:1])
        return hashlib.sha256(f"{session}\n{self.prompt}".encode()).hexdigest()

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """The model's turns so far, without aborted ones, which are repeated."""
        return tuple(one for one in self.all_rounds if not one.was_broken_off)

    @cached_property
    def all_rounds(self) -> tuple[Round, ...]:
        """All turns. Consecutive assistant messages are one turn, because the program may split it."""
        rounds: list[Round] = []
        in_turn = False
        for message in self.messages:
            if message.role == "assistant" and _text_of(message.content).strip() != _SYNTHETIC:
                if not in_turn:
                    rounds.append(Round())
                rounds[-1] = rounds[-1].with_calls(message)
                in_turn = True
            elif message.role == "user":
                rounds[-1:] = [done.with_results(message) for done in rounds[-1:]]
                in_turn = False
        return tuple(rounds)

    def recorded_answer(self, questions: tuple[str, ...]) -> HumanAnswer | None:
        """Return the answer from an earlier session that the prompt of a replay has, or None.

        The log of past actions in the prompt is ignored: it also has questions without an answer.
        """
        text = "\n".join(self._sections(_ANSWER_SECTIONS))
        asked = {q for done in self.rounds for ask in done.asks for q in questions_of(ask.name, ask.input)}
        if not asked & set(questions):
            # A worker died before the question was in the session: a later prompt has the answer.
            later = [message for message in self.messages if message.role == "user"][1:]
            prompts = [block.text for message in later for block in message.blocks if block.type == "text"]
            text = "\n".join([text, *prompts])
        found = [_quoted_answers(text, question)[-1:] for question in questions]
        if not found or not all(found):
            return None
        combined = "\n".join(answer for answers in found for answer in answers)
        return HumanAnswer(combined, combined)

    def _sections(self, names: frozenset[str]) -> list[str]:
        parts = _SECTION.split(self.prompt)
        return [body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name in names]


@dataclass(frozen=True)
class HumanAnswer:
    """An answer of a human: its exact words, and the whole result of the tool."""

    words: str
    result: str


@dataclass(frozen=True)
class Round:
    """One turn of the model with its questions, their answers and the results of its calls."""

    asks: tuple[Block, ...] = ()
    answers: tuple[HumanAnswer, ...] = ()
    results: str = ""
    was_broken_off: bool = False

    def with_calls(self, message: Message) -> Round:
        """Return the round with the asks of one more assistant message."""
        asks = [block for block in message.blocks if questions_of(block.name, block.input)]
        return replace(self, asks=(*self.asks, *asks))

    def with_results(self, message: Message) -> Round:
        """Return the round with what a user message brings back for its asks."""
        by_id = {block.tool_use_id: block for block in message.blocks if block.type == "tool_result"}
        found = [_parse_answer(ask, by_id[ask.id].whole_text) for ask in self.asks if ask.id in by_id]
        results = "\n".join([self.results, *(block.whole_text for block in by_id.values())])
        broken = [was_broken_off(block.whole_text) for block in by_id.values()]
        died = self.was_broken_off or (bool(broken) and all(broken))
        return Round(self.asks, (*self.answers, *found), results, died)


def read_conversation(body: bytes) -> Conversation:
    """Read a request's body. Raises BadInput when it is not a Messages API request."""
    try:
        return Conversation.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise BadInput(f"{place}: {fault['msg']}", where="Messages API request") from error


def tokens_in(value: object) -> int:
    """Estimate tokens by the usual rule of thumb: four bytes each."""
    return max(1, len(json.dumps(value, ensure_ascii=False, default=str).encode()) // 4)


def _text_of(content: str | list[Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.whole_text for block in content)


def _quoted_answers(text: str, question: str) -> list[str]:
    """Return the quoted answers below a question in a prompt."""
    pattern = rf"> {re.escape(question)}\s+Answer:\n((?: *>.*\n?)+)"
    return [_QUOTE_MARK.sub("", quotation).rstrip("\n") for quotation in re.findall(pattern, text)]


def _parse_answer(ask: Block, result: str) -> HumanAnswer:
    """Extract the human's words from a result: AskUserQuestion wraps each as "question"="answer"."""
    marks = [f'"{question}"="' for question in questions_of(ask.name, ask.input)]
    if ask.name != "AskUserQuestion" or not all(mark in result for mark in marks):
        return HumanAnswer(result, result)
    texts = [_between(result, mark, marks[index + 1 :]) for index, mark in enumerate(marks)]
    words = [text.partition('" notes: ')[0] for text in texts]
    return HumanAnswer("\n".join(words), result)


def _between(result: str, mark: str, later: list[str]) -> str:
    rest = result[result.index(mark) + len(mark) :]
    if later:
        return rest.partition(later[0])[0].removesuffix(", ").removesuffix('"')
    # The tool's own closing sentence follows the last answer, after the last quote-and-full-stop.
    end = rest.rfind('". ')
    if end >= 0:
        return rest[:end]
    return rest.removesuffix('"')

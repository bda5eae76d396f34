"""Find the next turn of a scenario for a conversation, and fill in its placeholders."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tasks_app.rehearsal.conversation import Conversation, HumanAnswer
from tasks_app.rehearsal.scenario import PLACEHOLDER, Choose, Entry, Failure, Scenario, Turn

THE_END: Final = Turn(text="The script of this rehearsal ends here; nothing more was done.")
SIDE_ANSWER: Final = Turn(text="Rehearsal")


@dataclass(frozen=True)
class Call:
    """A tool call with its id, ready to be sent."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """The response to one request. `delay` is in seconds; with `failure` there are no text and calls."""

    id: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    delay: float = 0.0
    cut: bool = False
    failure: Failure | None = None
    stop_reason: str = ""


def reply_to(conversation: Conversation, scenario: Scenario) -> Reply:
    """Return the scenario's next turn for this conversation, placeholders filled in."""
    turn, answers = _find_position(conversation, scenario)
    last = answers[-1] if answers else HumanAnswer("", "")
    values = {
        "answer": last.words,
        "answers": "\n".join(said.words for said in answers),
        "result": last.result,
        "turn": str(len(conversation.rounds) + 1),
        "workspace": conversation.workspace,
    }
    identity = f"{scenario.name}:{len(conversation.all_rounds)}:{conversation.fingerprint}"
    return Reply(
        id=f"msg_{_digest(identity)}",
        text=_fill_in(turn.text, values),
        calls=tuple(
            Call(f"toolu_{_digest(f'{identity}:{index}')}", tool.name, _fill_in(tool.input, values))
            for index, tool in enumerate(turn.tools)
        ),
        delay=turn.delay,
        cut=turn.cut,
        failure=turn.error,
        stop_reason=turn.stop_reason,
    )


def side_reply(conversation: Conversation) -> Reply:
    """Answer a request without tools, such as the one for a title: no turn of any script."""
    return Reply(id=f"msg_{_digest(conversation.fingerprint)}", text=SIDE_ANSWER.text)


def _find_position(conversation: Conversation, scenario: Scenario) -> tuple[Turn, list[HumanAnswer]]:
    """Return the next turn of a conversation, and the answers before it."""
    rounds = conversation.rounds
    made = 0
    answers: list[HumanAnswer] = []
    remaining: deque[Entry] = deque(scenario.turns)
    while remaining:
        entry = remaining.popleft()
        if isinstance(entry, Choose):
            answer = answers[-1].words if answers else None
            result = rounds[made - 1].results if 0 < made <= len(rounds) else ""
            remaining.extendleft(reversed(entry.select_branch(answer, result).turns))
            continue
        if not entry.applies(prompt=conversation.prompt, tools=conversation.tool_names):
            continue
        recorded = conversation.recorded_answer(entry.questions)
        if recorded is not None:
            answers.append(recorded)
            continue
        if len(rounds) < made + entry.repeat:
            return entry, answers
        answers += [said for given in rounds[made : made + entry.repeat] for said in given.answers]
        made += entry.repeat
    return THE_END, answers


def _fill_in(value: Any, values: Mapping[str, str]) -> Any:
    # One pass, so that placeholders in an answer are not replaced.
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda match: values[match[1]], value)
    if isinstance(value, Mapping):
        return {key: _fill_in(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_in(item, values) for item in value]
    return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]

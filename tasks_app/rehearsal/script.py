"""Finding the next turn of a scenario in a conversation, and filling its texts in."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tasks_app.rehearsal.conversation import Conversation, Said
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
    """What the API answers to one request. `delay` is in seconds; `failure` excludes text and calls."""

    id: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    delay: float = 0.0
    cut: bool = False
    failure: Failure | None = None


@dataclass(frozen=True)
class _Place:
    """Where a conversation stands in a script: the turn to give now and what was answered before it."""

    turn: Turn
    answers: tuple[Said, ...] = ()


def reply_to(conversation: Conversation, scenario: Scenario) -> Reply:
    """Return the scenario's next turn for this conversation, placeholders filled in."""
    place = _find_place(conversation, scenario)
    values = _values(conversation, place.answers)
    identity = f"{scenario.name}:{len(conversation.all_rounds)}:{conversation.fingerprint}"
    return Reply(
        id=f"msg_{_digest(identity)}",
        text=_filled(place.turn.text, values),
        calls=tuple(
            Call(f"toolu_{_digest(f'{identity}:{index}')}", tool.name, _filled(tool.input, values))
            for index, tool in enumerate(place.turn.tools)
        ),
        delay=place.turn.delay,
        cut=place.turn.cut,
        failure=place.turn.error,
    )


def side_reply(conversation: Conversation) -> Reply:
    """Answer a request without tools, such as the one for a title: no turn of any script."""
    return Reply(id=f"msg_{_digest(conversation.fingerprint)}", text=SIDE_ANSWER.text)


def _find_place(conversation: Conversation, scenario: Scenario) -> _Place:
    rounds = conversation.rounds
    made = 0
    answers: list[Said] = []
    ahead: deque[Entry] = deque(scenario.turns)
    while ahead:
        entry = ahead.popleft()
        if isinstance(entry, Choose):
            answer = answers[-1].words if answers else None
            result = rounds[made - 1].results if 0 < made <= len(rounds) else ""
            ahead.extendleft(reversed(entry.way_after(answer, result).turns))
            continue
        if not entry.fits(prompt=conversation.prompt, tools=conversation.tool_names):
            continue
        recorded = conversation.recorded_answer(entry.questions)
        if recorded is not None:
            answers.append(recorded)
            continue
        if len(rounds) < made + entry.repeat:
            return _Place(entry, tuple(answers))
        answers += [said for given in rounds[made : made + entry.repeat] for said in given.answers]
        made += entry.repeat
    return _Place(THE_END, tuple(answers))


def _values(conversation: Conversation, answers: tuple[Said, ...]) -> dict[str, str]:
    return {
        "answer": answers[-1].words if answers else "",
        "answers": "\n".join(said.words for said in answers),
        "result": answers[-1].result if answers else "",
        "turn": str(len(conversation.rounds) + 1),
        "workspace": conversation.workspace,
    }


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    # One pass: an answer that itself contains a placeholder reaches the agent as it was typed.
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda match: values[match[1]], value)
    if isinstance(value, Mapping):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]

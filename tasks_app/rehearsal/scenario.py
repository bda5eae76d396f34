"""Scenarios: YAML files with the scripted responses of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from tasks_app.core.errors import BadInput

SHIPPED = Path(__file__).parent / "scenarios"
PLACEHOLDERS = frozenset({"answer", "answers", "result", "turn", "workspace"})
PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_BY_NAME = re.compile(r"^[ \t]*rehearsal:[ \t]*([\w-]+)[ \t]*$", re.MULTILINE)
_COMMAND_ASK = re.compile(r"\bcat-herder ask \"([^\"]*)\"")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolCall(_Strict):
    """One tool call the model makes."""

    name: str = Field(min_length=1)
    input: dict[str, Any] = Field(default_factory=dict)

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions that this call asks a human, by tool or by command."""
        return questions_of(self.name, self.input)


class Failure(_Strict):
    """An error response of the API: status, headers and message."""

    status: int = Field(ge=400, le=599)
    type: str = "api_error"
    message: str
    headers: dict[str, str] = Field(default_factory=dict)


class Turn(_Strict):
    """One response of the model, given `repeat` times.

    `delay` is in seconds. `cut` closes the connection in the middle of the response. `stop_reason` is sent
    instead of the usual one. `only_if_prompt` and `unless_prompt` skip the turn, depending on the first
    prompt.
    """

    text: str = ""
    tools: tuple[ToolCall, ...] = ()
    delay: float = Field(default=0.0, ge=0, le=60)
    repeat: int = Field(default=1, ge=1, le=1000)
    error: Failure | None = None
    cut: bool = False
    stop_reason: str = ""
    only_if_prompt: str = ""
    unless_prompt: str = ""

    @model_validator(mode="after")
    def _require_content(self) -> Turn:
        if not (self.text or self.tools or self.error):
            raise ValueError("a turn needs a text, tools or an error")
        return self

    @property
    def questions(self) -> tuple[str, ...]:
        return tuple(question for tool in self.tools for question in tool.questions)

    def applies(self, *, prompt: str, tools: frozenset[str]) -> bool:
        """Return whether this turn applies: its conditions hold, and the tool for questions is available."""
        if any(tool.name == "AskUserQuestion" for tool in self.tools) and "AskUserQuestion" not in tools:
            return False
        if self.unless_prompt and self.unless_prompt in prompt:
            return False
        return self.only_if_prompt in prompt


class Branch(_Strict):
    """Turns for an answer that contains `if_answer`, for any answer (`answered`), for a result of the last
    turn's calls that contains `if_result`, or, without conditions, otherwise."""

    if_answer: str = ""
    answered: bool = False
    if_result: str = ""
    turns: tuple[Entry, ...]

    def matches(self, answer: str | None, result: str = "") -> bool:
        """Return whether this branch applies to `answer` (None: nobody was asked) and `result`."""
        if self.if_result:
            return self.if_result in result
        if self.if_answer or self.answered:
            return answer is not None and self.if_answer in answer
        return True


class Choose(_Strict):
    """A choice of branches: the first that matches is taken. The last must match everything."""

    choose: tuple[Branch, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _require_default_branch(self) -> Choose:
        if not self.choose[-1].matches(None):
            raise ValueError("the last branch of a choose must be without if_answer and answered")
        return self

    def select_branch(self, answer: str | None, result: str = "") -> Branch:
        """Return the branch for `answer` and the results of the last turn."""
        return next(branch for branch in self.choose if branch.matches(answer, result))


def _entry_kind(value: object) -> str:
    if isinstance(value, Choose) or (isinstance(value, dict) and "choose" in value):
        return "choose"
    return "turn"


Entry: TypeAlias = Annotated[
    Annotated[Turn, Tag("turn")] | Annotated[Choose, Tag("choose")], Discriminator(_entry_kind)
]
Branch.model_rebuild()
Choose.model_rebuild()


class Scenario(_Strict):
    """A script. `when` has texts that the first prompt must contain; without it, only the name selects it."""

    name: str = Field(pattern=r"^[\w-]+$")
    about: str = Field(min_length=1)
    when: tuple[str, ...] | None = None
    turns: tuple[Entry, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _require_known_placeholders(self) -> Scenario:
        unknown = sorted(set(_placeholders(self.model_dump())) - PLACEHOLDERS)
        if unknown:
            known = ", ".join(sorted(PLACEHOLDERS))
            raise ValueError(f"unknown placeholder {{{{{unknown[0]}}}}}; known are {known}")
        return self

    def matches_prompt(self, prompt: str) -> bool:
        """Return whether every text of `when` is in the prompt."""
        return self.when is not None and all(part in prompt for part in self.when)


def questions_of(name: str, tool_input: dict[str, Any]) -> tuple[str, ...]:
    """Return the questions in a tool call, whether it asks by tool or by command."""
    if name == "AskUserQuestion":
        items = tool_input.get("questions")
        if not isinstance(items, list):
            return ()
        named = (item for item in items if isinstance(item, dict) and "question" in item)
        return tuple(str(item["question"]) for item in named)
    if name == "Bash":
        return tuple(_COMMAND_ASK.findall(str(tool_input.get("command", ""))))
    return ()


def load_scenario(path: Path) -> Scenario:
    """Read one scenario file. Raises BadInput, which names the file and the key."""
    try:
        scenario = Scenario.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"cannot be read: {error}", where=str(path)) from error
    except ValidationError as error:
        fault = error.errors()[0]
        # pydantic names the kind of each entry as well; people find the place by the keys they wrote.
        steps = zip(fault["loc"], ("", *fault["loc"]), strict=False)
        place = ".".join(str(part) for part, before in steps if part not in ("turn", before))
        message = f"{place}: {fault['msg']}" if place else fault["msg"]
        raise BadInput(message, where=str(path)) from error
    if scenario.name != path.stem:
        raise BadInput(f'the name "{scenario.name}" must be the name of the file', where=str(path))
    return scenario


def load_scenarios(folder: Path = SHIPPED) -> tuple[Scenario, ...]:
    """Read every scenario of a folder, by name. Raises BadInput for the first invalid one."""
    return tuple(load_scenario(path) for path in sorted(folder.glob("*.yaml")))


def choose_scenario(scenarios: Iterable[Scenario], prompt: str) -> Scenario:
    """Return the scenario for a first prompt: the one it names, or the one with the most matching texts.

    Raises BadInput if the prompt names an unknown scenario, or none matches.
    """
    by_name = {scenario.name: scenario for scenario in scenarios}
    named = _BY_NAME.search(prompt)
    if named:
        if named[1] not in by_name:
            names = ", ".join(by_name)
            raise BadInput(f'there is no scenario "{named[1]}"; there are {names}', where="rehearsal")
        return by_name[named[1]]
    matching = [scenario for scenario in by_name.values() if scenario.matches_prompt(prompt)]
    if not matching:
        raise BadInput("no scenario matches this prompt", where="rehearsal")
    return max(matching, key=lambda scenario: len(scenario.when or ()))


def _placeholders(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from PLACEHOLDER.findall(value)
    elif isinstance(value, dict):
        yield from _placeholders(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _placeholders(item)

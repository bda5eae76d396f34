"""The descriptor of a project setting: its name, its meaning, and how its override is entered and shown.

A key of `cat-herder.yaml` that carries a `Setting` (see `repository_settings.py`) can be overridden in
the portal. The form, the page, the API and `cat-herder project settings` read the descriptor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, Strict, TypeAdapter, ValidationError

from tasks_app.agent.gate.patterns import call_pattern_fault
from tasks_app.config.faults import describe, fault, shown
from tasks_app.config.fields import (
    LONGEST_CALENDAR,
    LONGEST_SECONDS,
    FileModel,
    Flag,
    Threshold,
    check_calendar,
    check_model,
    duration_text,
    seconds_from_text,
)
from tasks_app.config.routing import AskRule, AskRules
from tasks_app.config.threshold import LEVELS
from tasks_app.config.tool_names import unknown_tool
from tasks_app.config.yaml_text import read_model, read_yaml
from tasks_app.core.amounts import duration_in_words
from tasks_app.core.environment import Environment
from tasks_app.core.errors import BadInput
from tasks_app.core.labels import STORED_LENGTH, labels_from_text
from tasks_app.core.ladder import ladder_from
from tasks_app.core.types import NETWORKS, JsonObject

if TYPE_CHECKING:
    from tasks_app.config.pipeline import ProjectConfig

Choices = tuple[tuple[str, str], ...]

#: PostgreSQL stores no NUL.
_Text = Annotated[str, Strict(), Field(pattern=r"^[^\x00]*$")]


def value_in_words(value: object) -> str:
    """Return a value as pages show it; "" for one that is not set."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "\n".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How an override is stored, entered and shown.

    `stored` is the type with its bounds, and `unset` the value that leaves the setting to the file. Forms and
    commands take text: `from_text` reads it and raises BadInput, `as_text` is the reverse. The hints follow
    the setting's help where text is entered and where JSON is sent. `to_config` makes the value that
    `ProjectConfig` holds. `widget` is the kind of form field; a pipeline's choices come from the file.
    """

    stored: Any
    widget: Literal["select", "pipelines", "number", "line", "lines"]
    unset: Literal[""] | None = None
    choices: Choices = ()
    from_text: Callable[[str], object] = str
    as_text: Callable[[Any], str] = str
    in_words: Callable[[Any], str] = value_in_words
    to_config: Callable[[Any], object] = lambda value: value
    text_hint: str = ""
    json_hint: str = ""

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.stored)

    @cached_property
    def schema(self) -> JsonObject:
        """Return the JSON Schema of a value that is set: its bounds also apply to the form field."""
        schema: JsonObject = self._adapter.json_schema()
        variants = schema.get("anyOf")
        if not isinstance(variants, list):
            return schema
        return next(dict(one) for one in variants if isinstance(one, Mapping) and one.get("type") != "null")

    @property
    def max_length(self) -> int | None:
        """Return the length of the longest text that may be stored, or None if the value is not free text."""
        longest = self.schema.get("maxLength")
        return longest if isinstance(longest, int) else None

    def check(self, value: object) -> Any:
        """Return the value. Raise BadInput, whose message continues the label, if it is not usable."""
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            raise BadInput(describe(error.errors()[0])) from None

    def parse(self, text: str) -> Any:
        """Return the value that a person entered; no text leaves the setting to the file. Raise BadInput."""
        entered = text.replace("\r\n", "\n").strip()
        if not entered:
            return self.unset
        if self.choices and entered not in dict(self.choices):
            listed = ", ".join(choice for choice, _ in self.choices)
            raise BadInput(f"must be one of {listed}, not {shown(entered)}")
        return self.check(self.from_text(entered))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting that the portal can override.

    `name` is that in `Project.overrides`, of the form field, the API's field and the command's option, if it
    is not the name of the file's key. `default` says what holds where neither file nor portal says anything.
    If the file and the portal mean different things, `file_help` describes the key, and `overrides` is the
    attribute of `ProjectConfig` that the portal sets; `in_effect` then combines the override and the file's
    value.

    `path` leads to the file's key in `ProjectConfig`; it is filled in when the settings are collected, and
    stays empty for a setting that only the portal has.
    """

    kind: Kind
    label: str
    help: str
    name: str = ""
    default: Callable[[ProjectConfig, Environment], str] = lambda config, environment: "no limit"
    file_help: str = ""
    overrides: str = ""
    in_effect: Callable[[Any, Any, Environment], Any] | None = None
    path: tuple[str, ...] = ()

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the key in the JSON Schema of `cat-herder.yaml`."""
        return {**handler(core_schema), "description": self.file_help or self.help}

    @property
    def option(self) -> str:
        """Return the option of `cat-herder project settings`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def text_help(self) -> str:
        """Return the help for those who enter text."""
        return f"{self.help} {self.kind.text_hint}".strip()

    @property
    def json_help(self) -> str:
        """Return the help for those who send JSON."""
        return f"{self.help} {self.kind.json_hint}".strip()

    def choices(self, config: ProjectConfig) -> Choices:
        """Return the values to choose from, each with its label; empty if any text may be entered."""
        if self.kind.widget == "pipelines":
            return tuple((one.name, one.name) for one in config.pipelines)
        return self.kind.choices


def call_patterns(text: str, *, entered_now: bool = False) -> tuple[str, ...]:
    """Return patterns of tool calls, one per line. Raise BadInput that names the line.

    What is entered now must also name tools that exist. What was stored earlier need not: an upgrade that
    knows other tools must not take a project out of service.
    """
    patterns = []
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern := line.strip():
            reason = call_pattern_fault(pattern) or (unknown_tool(pattern) if entered_now else None)
            if reason:
                raise BadInput(f"line {number}, “{pattern[:60]}”, {reason}", where="ask before")
            patterns.append(pattern)
    return tuple(dict.fromkeys(patterns))


def _call_patterns_text(text: str) -> str:
    call_patterns(text, entered_now=True)
    return text


class _AskFile(FileModel):
    ask: AskRules = ()


def ask_rules(text: str) -> tuple[AskRule, ...]:
    """Return the rules of a list in YAML, as under `ask:` in the file. Raise BadInput that names the line."""
    if not text.strip():
        return ()
    document = read_yaml(f"ask:\n{text}", where="ask", first_line=0)
    return read_model(_AskFile, document, where="ask", keys_at=lambda location: AskRule).ask


def _ask_rules_text(text: str) -> str:
    ask_rules(text)
    return text


def _ask_rules_in_words(value: object) -> str:
    if isinstance(value, tuple):
        return "\n".join(str(rule) for rule in value)
    return value_in_words(value)


def _ladder_text(text: str) -> str:
    # Also as a list in YAML, as it stands in the file.
    lines = [line.strip().removeprefix("- ").strip() for line in text.splitlines() if line.strip()]
    try:
        ladder_from(lines)
    except BadInput as error:
        raise fault(error.message) from None
    return "\n".join(lines)


def _ladder_in_words(value: object) -> str:
    lines = value.splitlines() if isinstance(value, str) else value
    return "; ".join(map(str, lines)) if isinstance(lines, list | tuple) else value_in_words(value)


def _model_or_none(text: str) -> str:
    return check_model(text) if text else text


def _calendar_or_none(text: str) -> str:
    return check_calendar(text) if text else text


def _labels_text(text: str) -> str:
    try:
        return ", ".join(labels_from_text(text))
    except ValueError as error:
        raise BadInput(str(error)) from None


def _labels_or_fault(text: str) -> str:
    try:
        return _labels_text(text)
    except BadInput as error:
        raise fault(error.message) from None


def _whole_number(text: str) -> int:
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise BadInput(f"must be a whole number, not {shown(text)}")
    return int(text)


def _decimal_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"must be a number, not {shown(text)}") from None


def _duration_in_words(value: object) -> str:
    if isinstance(value, int):
        return duration_in_words(value)
    return value_in_words(value)


FLAG = Kind(
    stored=Flag | None,
    widget="select",
    choices=(("yes", "yes"), ("no", "no")),
    from_text=lambda text: text == "yes",
    as_text=value_in_words,
)
THRESHOLD = Kind(
    stored=Threshold | None,
    widget="select",
    choices=tuple((str(level), f"{level}: {sentence}") for level, sentence in LEVELS.items()),
    from_text=int,
)
PIPELINE = Kind(stored=Annotated[_Text, Field(max_length=100)], widget="pipelines", unset="")
MODEL = Kind(
    stored=Annotated[_Text, Field(max_length=100), AfterValidator(_model_or_none)], widget="line", unset=""
)
NETWORK = Kind(
    stored=Literal["", "none", "model", "full"],
    widget="select",
    unset="",
    choices=tuple((network, network) for network in reversed(NETWORKS)),
)
COUNT = Kind(
    stored=Annotated[int, Strict(), Field(ge=1, le=1_000_000)] | None,
    widget="number",
    from_text=_whole_number,
)
DOLLARS = Kind(
    stored=Annotated[float, Strict(), Field(ge=0.01, le=1_000_000, allow_inf_nan=False)] | None,
    widget="number",
    from_text=_decimal_number,
)
#: Here 0 switches off what the file says.
DOLLARS_OR_NONE = Kind(
    stored=Annotated[float, Strict(), Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None,
    widget="number",
    from_text=_decimal_number,
    in_words=lambda value: "none" if value == 0 else value_in_words(value),
)
#: Here 0 means that nothing may be spent.
BUDGET = Kind(
    stored=Annotated[float, Strict(), Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None,
    widget="number",
    from_text=_decimal_number,
)
DURATION = Kind(
    stored=Annotated[int, Strict(), Field(ge=1, le=LONGEST_SECONDS)] | None,
    widget="line",
    from_text=seconds_from_text,
    as_text=duration_text,
    in_words=_duration_in_words,
    text_hint="Enter 90s, 15m or 2h.",
    json_hint="In seconds.",
)
LABELS = Kind(
    stored=Annotated[_Text, Field(max_length=STORED_LENGTH), AfterValidator(_labels_or_fault)],
    widget="line",
    unset="",
    from_text=_labels_text,
    to_config=labels_from_text,
    in_words=lambda value: value if isinstance(value, str) else ", ".join(value or ()),
    text_hint="With commas between them.",
    json_hint="With commas between them.",
)
ASK_RULES = Kind(
    stored=Annotated[_Text, Field(max_length=10_000)],
    widget="lines",
    unset="",
    from_text=_ask_rules_text,
    to_config=ask_rules,
    in_words=_ask_rules_in_words,
    text_hint="A list in YAML, such as - {step: plan, people: [ann, payments]}.",
    json_hint="A list in YAML.",
)
LADDER = Kind(
    stored=Annotated[_Text, Field(max_length=1000), AfterValidator(_ladder_text)],
    widget="lines",
    unset="",
    to_config=lambda text: tuple(text.splitlines()),
    in_words=_ladder_in_words,
    text_hint="One rung per line, or a name.",
    json_hint="One rung per line, or a name.",
)
CALENDAR = Kind(
    stored=Annotated[_Text, Field(max_length=LONGEST_CALENDAR), AfterValidator(_calendar_or_none)],
    widget="line",
    unset="",
)
CALL_PATTERNS = Kind(
    stored=Annotated[_Text, Field(max_length=10_000)],
    widget="lines",
    unset="",
    from_text=_call_patterns_text,
    to_config=call_patterns,
    text_hint="One pattern per line.",
    json_hint="One pattern per line.",
)

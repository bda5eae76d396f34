"""Types of the values in settings files, with their validation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from tasks_app.agent.gate.path_patterns import LONGEST, path_pattern_fault
from tasks_app.agent.gate.patterns import LONGEST_PATTERN, call_pattern_fault
from tasks_app.config.faults import fault, shown
from tasks_app.config.threshold import HIGHEST, LOWEST, threshold_fault
from tasks_app.core.environment_values import TOOLCHAIN, is_readable_folder
from tasks_app.core.errors import BadInput
from tasks_app.core.labels import MOST_LABELS, label_fault

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# No leading dash, no blanks: the name becomes an argument of the agent's command line.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,199}")
#: Names of users at a forge; with a slash, of a team.
REVIEWER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_.-]{1,100})?")
MOST_REVIEWERS = 15
_DURATION = re.compile(r"([0-9]{1,9})\s*(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
#: The longest time limit of a run or a check: a week.
LONGEST_SECONDS = 7 * 24 * 3600


class FileModel(BaseModel):
    """Base of models that are read from a file: frozen, keys in camelCase, no unknown keys."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise fault(f"must be letters, digits, '.', '_' and '-' (64 at most), not {shown(text)}")
    return text


def check_model(text: str) -> str:
    """Return the name of a model. Raise a fault for pydantic if it is none."""
    if not _MODEL.fullmatch(text):
        raise fault(f"must be the name of a model, not {shown(text)}")
    return text


def _check_reviewer(text: str) -> str:
    name = text.removeprefix("@")
    if not REVIEWER.fullmatch(name):
        raise fault(f"must be the name of a user or a team at the forge, not {shown(text)}")
    return name


def _check_line(text: str) -> str:
    if not text.strip():
        raise fault("must not be empty")
    if not text.replace("\t", " ").isprintable():
        raise fault("must be one line without control characters")
    return text


def _check_command(text: str) -> str:
    if not text.strip():
        raise fault("must not be empty")
    if "\0" in text:
        raise fault("must not contain a NUL character")
    return text


def _check_inside(text: str) -> str:
    _check_line(text)
    if text.startswith(("/", "~", "\\")) or re.match(r"[A-Za-z]:", text):
        raise fault(f"must be relative to the repository, not {shown(text)}")
    if ".." in re.split(r"[/\\]", text):
        raise fault(f"must stay inside the repository, without '..', not {shown(text)}")
    return text


def as_list(value: object) -> object:
    """Let a file write one text where a list of them may stand."""
    return [value] if isinstance(value, str) else value


def check_path(text: str) -> str:
    if _check_inside(text).strip("./") == "":
        raise fault(f"must name a file, not {shown(text)}")
    return text


def _check_glob(text: str) -> str:
    if reason := path_pattern_fault(text):
        raise fault(f"{reason}, not {shown(text)}" if len(text) <= LONGEST else reason)
    return text


def _check_call_pattern(text: str) -> str:
    if reason := call_pattern_fault(text):
        raise fault(f"{reason}, not {shown(text)}" if len(text) <= LONGEST_PATTERN else reason)
    return text


def _check_label(text: str) -> str:
    if reason := label_fault(text):
        raise fault(f"{reason}, not {shown(text)}")
    return text


def _check_threshold(value: object) -> object:
    if reason := threshold_fault(value):
        raise fault(reason)
    return value


def _to_seconds(value: object) -> object:
    """Return seconds from a number or from text such as `90s`, `15m`, `2h`, and check the bounds."""
    seconds = value
    if isinstance(value, str) and (words := _DURATION.fullmatch(value.strip())):
        seconds = int(words[1]) * _SECONDS[words[2]]
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= LONGEST_SECONDS:
        raise fault(f'must be seconds or a duration such as "15m", at most 7 days, not {shown(value)}')
    return seconds


def seconds_from_text(text: str) -> int:
    """Return seconds from entered text: `90`, `90s`, `15m`, `2h`. Raises BadInput."""
    typed = text.strip()
    return int(_apply_rule(_to_seconds, int(typed) if re.fullmatch("[0-9]{1,9}", typed) else typed))


def duration_text(seconds: int) -> str:
    """Return seconds as they are written in the file: `45m`."""
    unit, size = next(
        (unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0
    )
    return f"{seconds // size}{unit}"


def model_name(text: str) -> str:
    """Return the name of a model that a person typed. Raises BadInput."""
    return str(_apply_rule(check_model, text.strip()))


def _apply_rule(rule: Callable[[Any], object], value: object) -> Any:
    try:
        return rule(value)
    except PydanticCustomError as error:
        raise BadInput(str(error)) from None


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Name = Annotated[Text, AfterValidator(_check_name)]
ModelName = Annotated[Text, AfterValidator(check_model)]
Reviewer = Annotated[Text, AfterValidator(_check_reviewer)]
Line = Annotated[Text, AfterValidator(_check_line)]
ShellCommand = Annotated[Text, AfterValidator(_check_command)]
InsidePath = Annotated[Text, AfterValidator(check_path)]
CallPattern = Annotated[Text, AfterValidator(_check_call_pattern)]
Glob = Annotated[Text, AfterValidator(_check_glob)]
WorkerLabels = Annotated[
    tuple[Annotated[Text, AfterValidator(_check_label)], ...], Field(max_length=MOST_LABELS)
]
Threshold = Annotated[int, Field(ge=LOWEST, le=HIGHEST), BeforeValidator(_check_threshold)]
Seconds = Annotated[int, BeforeValidator(_to_seconds, json_schema_input_type=int | str)]


# What of a worker's machine a project may name: toolchains, and folders to read.


MOST_ENTRIES = 10


def _check_toolchain(name: str) -> str:
    if not re.fullmatch(TOOLCHAIN, name):
        raise fault(f"must be the name of a toolchain, such as rust or node, not {shown(name)}")
    return name


def _check_few(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MOST_ENTRIES:
        raise fault(f"must have at most {MOST_ENTRIES} entries, not {len(names)}")
    return names


def _check_readable(folder: str) -> str:
    if not is_readable_folder(folder):
        raise fault(f"must be a folder such as /srv/datasets or ~/.m2/repository, not {shown(folder)}")
    return folder.rstrip("/")


T = TypeVar("T")
_Few = Annotated[
    tuple[T, ...],
    BeforeValidator(as_list, json_schema_input_type=str | list[str]),
    AfterValidator(_check_few),
]
Toolchains = _Few[Annotated[Line, AfterValidator(_check_toolchain)]]
ReadableFolders = _Few[Annotated[Line, AfterValidator(_check_readable)]]

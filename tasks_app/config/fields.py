"""Types of the values in settings files, with their validation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

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
from tasks_app.core.ladder import ladder_from

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
# No leading dash, no blanks: the name becomes an argument of the agent's command line.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,199}")
#: Names of users at a forge; with a slash, of a team.
REVIEWER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(/[A-Za-z0-9_.-]{1,100})?")
MOST_REVIEWERS = 15
_DURATION = re.compile(r"([0-9]{1,9})\s*(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
#: The longest time limit of a run or a check: a week.
LONGEST_SECONDS = 7 * 24 * 3600
#: Characters of the URL or path of a calendar.
LONGEST_CALENDAR = 1000


class FileModel(BaseModel):
    """Base of models that are read from a file: frozen, keys in camelCase, no unknown keys."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


def _unless(reason_of: Callable[[str], str | None], *, longest: int = LONGEST_PATTERN) -> AfterValidator:
    """Return a validator that refuses a text with the reason, and shows it unless it is longer than that."""

    def check(text: str) -> str:
        if reason := reason_of(text):
            raise fault(f"{reason}, not {shown(text)}" if len(text) <= longest else reason)
        return text

    return AfterValidator(check)


def _matching(pattern: str, what: str) -> AfterValidator:
    """Return a validator for texts of this form; `what` they must be."""
    return _unless(lambda text: None if re.fullmatch(pattern, text) else f"must be {what}")


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


def check_calendar(text: str) -> str:
    """Return an https URL of a calendar, or its path in the repository. Raise a fault otherwise."""
    _check_line(text)
    if len(text) > LONGEST_CALENDAR:
        raise fault(f"must have at most {LONGEST_CALENDAR} characters")
    if "://" not in text:
        return check_path(text)
    try:
        parts = urlsplit(text.replace("webcal://", "https://", 1))
        is_usable = (
            parts.scheme == "https" and parts.hostname and (parts.port or 1) and "@" not in parts.netloc
        )
    except ValueError:
        is_usable = False
    if not is_usable or " " in text:
        raise fault(f"must be an https URL without user name and password, not {shown(text)}")
    return parts.geturl()


def _check_ladder(lines: tuple[str, ...]) -> tuple[str, ...]:
    try:
        ladder_from(lines)
    except BadInput as error:
        raise fault(error.message) from None
    return lines


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


def calendar_url(text: str) -> str:
    """Return the https URL of a calendar that a person typed. Raises BadInput."""
    url = str(_apply_rule(check_calendar, text.strip()))
    if "://" not in url:
        raise BadInput(f"must be an https URL, not {shown(text)}")
    return url


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
Name = Annotated[Text, _matching(_NAME, "letters, digits, '.', '_' and '-' (64 at most)")]
ModelName = Annotated[Text, AfterValidator(check_model)]
Reviewer = Annotated[Text, AfterValidator(_check_reviewer)]
Line = Annotated[Text, AfterValidator(_check_line)]
ShellCommand = Annotated[Text, AfterValidator(_check_command)]
InsidePath = Annotated[Text, AfterValidator(check_path)]
CalendarSource = Annotated[Text, AfterValidator(check_calendar)]
CallPattern = Annotated[Text, _unless(call_pattern_fault)]
Glob = Annotated[Text, _unless(path_pattern_fault, longest=LONGEST)]
WorkerLabels = Annotated[tuple[Annotated[Text, _unless(label_fault)], ...], Field(max_length=MOST_LABELS)]
Ladder = Annotated[tuple[Text, ...], AfterValidator(_check_ladder)]
Threshold = Annotated[int, Field(ge=LOWEST, le=HIGHEST), BeforeValidator(_check_threshold)]
Seconds = Annotated[int, BeforeValidator(_to_seconds, json_schema_input_type=int | str)]


# What of a worker's machine a project may name: toolchains, and folders to read.


MOST_ENTRIES = 10


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
Toolchains = _Few[Annotated[Line, _matching(TOOLCHAIN, "the name of a toolchain, such as rust or node")]]
ReadableFolders = _Few[Annotated[Line, AfterValidator(_check_readable)]]

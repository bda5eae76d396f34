"""Errors in files that people write, each with its line, key and message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails, PydanticCustomError

from tasks_app.core.errors import BadInput

Location = tuple[str | int, ...]

_SHOWN_VALUE = 60
_LISTED_PROBLEMS = 25

# Keys that people bring along from other tools, and what they are called here.
_OTHER_NAMES = {"autonomyLevel": "interactionThreshold", "steps": "pipelines", "prompt": "command"}


@dataclass(frozen=True)
class Problem:
    """One fault: its line (from 1, or None), the key's full path, and the message.

    `message` continues the key into a sentence: "must be true or false, not 3". A fault of the file as a
    whole has the key "" and a message that stands alone.
    """

    line: int | None
    key: str
    message: str

    @property
    def sentence(self) -> str:
        return f"{self.key} {self.message}".lstrip()


class ConfigInvalid(BadInput):
    """A file that people write has faults; `problems` holds all of them in the order of their lines."""

    def __init__(self, problems: Iterable[Problem], *, where: str) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        if len(self.problems) == 1:
            super().__init__(self.problems[0].sentence, where=_file_and_line(where, self.problems[0].line))
        else:
            super().__init__(_listing(self.problems, where=where), where=where)
        self.file = where


def _file_and_line(where: str, line: int | None) -> str:
    if line:
        return f"{where}:{line}"
    return where


def _listing(problems: Sequence[Problem], *, where: str) -> str:
    rows = [f"  {_file_and_line(where, one.line)}: {one.sentence}" for one in problems[:_LISTED_PROBLEMS]]
    if len(problems) > _LISTED_PROBLEMS:
        rows.append(f"  … and {len(problems) - _LISTED_PROBLEMS} more")
    return "\n".join([f"{len(problems)} faults", *rows])


def shown(value: object) -> str:
    """Return a short form of a value for messages: `true`, `"high"`, `nothing`, `a list`."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    if isinstance(value, (str, int, float)):
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _SHOWN_VALUE:
        return text
    return text[: _SHOWN_VALUE - 1] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "retry"?` if one of the known names is similar, else an empty text."""
    by_folded = {candidate.lower().replace("_", "").replace("-", ""): candidate for candidate in known}
    if _OTHER_NAMES.get(name) in by_folded.values():
        return f'; did you mean "{_OTHER_NAMES[name]}"?'
    close = get_close_matches(name.lower().replace("_", "").replace("-", ""), by_folded, n=1, cutoff=0.6)
    if close:
        return f'; did you mean "{by_folded[close[0]]}"?'
    return ""


def fault(reason: str) -> PydanticCustomError:
    """Return an error for a pydantic validator to raise; `reason` follows the key in a sentence."""
    return PydanticCustomError("fault", "{reason}", {"reason": reason})


def key_path(location: Location) -> str:
    """Return `("pipelines", "default", 1, "retry")` as `pipelines.default[1].retry`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _not(error: ErrorDetails) -> str:
    return f"not {shown(error['input'])}"


def _bound(words: str, name: str) -> Callable[[ErrorDetails], str]:
    return lambda error: f"must be {words} {error['ctx'][name]:g}, {_not(error)}"


def _kind(words: str) -> Callable[[ErrorDetails], str]:
    return lambda error: f"must be {words}, {_not(error)}"


_MESSAGES: dict[str, Callable[[ErrorDetails], str]] = {
    "fault": lambda error: error["msg"],
    "missing": lambda error: "is missing",
    "string_type": _kind("text"),
    "int_type": _kind("a whole number"),
    "float_type": _kind("a number"),
    "bool_type": _kind("true or false"),
    "model_type": _kind("a mapping"),
    "model_attributes_type": _kind("a mapping"),
    "dict_type": _kind("a mapping"),
    "tuple_type": _kind("a list"),
    "finite_number": _kind("a finite number"),
    "literal_error": lambda error: f"must be {error['ctx']['expected']}, {_not(error)}",
    "greater_than": _bound("more than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than_equal": _bound("at most", "le"),
    "union_tag_not_found": lambda error: "has no type",
    "union_tag_invalid": lambda error: (
        f"has the unknown type {shown(error['ctx']['tag'])}; known are: {error['ctx']['expected_tags']}"
    ),
}


def describe(error: ErrorDetails) -> str:
    """Return a pydantic error as the rest of a sentence that begins with the key."""
    if message := _MESSAGES.get(error["type"]):
        return message(error)
    return f"is not usable: {error['msg']}"

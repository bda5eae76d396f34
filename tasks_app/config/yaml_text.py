"""YAML as people write it, read into plain values that know their lines; bounded and without surprises.

PyYAML's own construction is left out on purpose: tags, aliases, timestamps and base-60 numbers are ways
to make a small file expensive or a plain word something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from tasks_app.config.faults import ConfigInvalid, Location, Problem, describe, did_you_mean, key_path
from tasks_app.config.fields import FileModel
from tasks_app.core.text import storable_text


@dataclass(frozen=True)
class WrittenPipeline:
    """A pipeline with its place in the file: a list of steps, or a mapping with the key `steps`."""

    place: Location
    value: object

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def steps_place(self) -> Location:
        if self.is_mapping:
            return (*self.place, "steps")
        return self.place

    @property
    def steps(self) -> object:
        if isinstance(self.value, dict):
            return self.value.get("steps")
        return self.value

    @property
    def publish(self) -> dict[str, object]:
        """The key `publish` if it is a mapping, else nothing."""
        if isinstance(self.value, dict) and isinstance(found := self.value.get("publish"), dict):
            return found
        return {}

    def each_step(self) -> Iterator[tuple[Location, dict[str, object]]]:
        """Yield every step that has the form of one, with its place."""
        if isinstance(self.steps, list):
            for index, step in enumerate(self.steps):
                if isinstance(step, dict):
                    yield (*self.steps_place, index), step


def written_pipelines(value: object) -> Iterator[WrittenPipeline]:
    """Yield the pipelines in the plain value of a file; none if it has another form."""
    if isinstance(value, dict) and isinstance(pipelines := value.get("pipelines"), dict):
        for name, pipeline in pipelines.items():
            yield WrittenPipeline(("pipelines", name), pipeline)


MAX_BYTES = 1_000_000
_MAX_DEPTH = 20
_MAX_NODES = 10_000

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "timestamp", "value", "merge")}
_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?[0-9]{0,30}\.?[0-9]{0,30}([eE][-+]?[0-9]{1,3})?")
#: A line with a value: an item of a list, or behind a key.
_ENTRY = re.compile(r"(?P<before>[ \t]*(?:- +)*(?:[\w./-]+ *:|-)) +(?P<value>\S.*?)[ \t]*$")
#: Characters with which no plain value begins.
_SPECIAL = "@`*&!%|>[]{},?\"'"
_LONGEST_LINE = 2_000
#: A comment behind a value: people write a blank after `#`, unlike in `Fix #12`.
_COMMENT = re.compile(r"[ \t]+(?P<comment>#[^\n]+)")
_SHOWN_COMMENT = 60


@dataclass(frozen=True)
class YamlDocument:
    """The plain value of a file, the line of every key and item, and faults that did not stop reading.

    `cut` are values whose end seems to be taken for a comment.
    """

    value: object
    lines: Mapping[Location, int]
    problems: tuple[Problem, ...]
    cut: tuple[Problem, ...] = ()

    def line_of(self, location: Location) -> int | None:
        """The line of the key or item; of the nearest thing around it when it is not written itself."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location)


class _BoundedLoader(yaml.SafeLoader):
    """Refuses aliases, with which a short text becomes gigabytes, and deep nesting."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed", problem_mark=mark)
        if self.peek_event().anchor is not None:  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="anchors (&name) are not allowed", problem_mark=mark)
        self._depth += 1
        self._nodes += 1
        if self._depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            raise yaml.MarkedYAMLError(problem="this is nested too deeply or too long", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode) and storable_text(node.value) != node.value:
            raise yaml.MarkedYAMLError(
                problem="this has a character that no text can hold", problem_mark=mark
            )
        return node


def read_yaml(text: str, *, where: str, first_line: int = 1) -> YamlDocument:
    """Read one YAML document; `first_line` is the line of the file on which `text` begins.

    Raises `ConfigInvalid` when the text is too large or is not YAML at all.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigInvalid([Problem(None, "", f"the file is larger than {MAX_BYTES:,} bytes")], where=where)
    text = text.removeprefix("\ufeff")
    try:
        node = _BoundedLoader(text).get_single_node()
    except yaml.YAMLError as error:
        raise ConfigInvalid([_syntax_problem(error, text, first_line)], where=where) from error
    if node is None:
        return YamlDocument(None, {(): first_line}, ())
    return _Reading(first_line, text.splitlines()).document(node)


def _syntax_problem(error: yaml.YAMLError, text: str, first_line: int) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position)
        return Problem(line + first_line, "", "there is a control character that YAML does not allow")
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(None, "", f"this is not YAML: {error}")
    mark, problem = error.problem_mark or error.context_mark, error.problem or ""
    if "'\\t'" in problem:
        message = "there is a tab; YAML is indented with spaces"
    elif "another document" in problem:
        message = "a second YAML document begins here; only one is allowed"
    elif problem.startswith(("aliases", "anchors", "this is nested", "this has")):
        message = problem
    else:
        message = f"this is not YAML: {', '.join(filter(None, (error.context, problem)))}"
    if mark is None:
        return Problem(None, "", message)
    written = [*text.splitlines(), ""][mark.line]
    return Problem(mark.line + first_line, "", message + _advice(written))


def _advice(line: str) -> str:
    """Say how to write the value of the line, if it is one that YAML takes for something else."""
    found = _ENTRY.match(line[: _LONGEST_LINE + 1])
    if found is None or len(line) > _LONGEST_LINE:
        return ""
    value = found["value"]
    if len(value) > 1 and value[0] in "\"'" and value.endswith(value[0]):
        inner = value[1:-1]
        is_wrong = "'" in inner.replace("''", "")
        if value[0] == '"':
            is_wrong = "\\" in inner
    else:
        inner = value
        is_open = any(value[0] == begin and end not in value[1:] for begin, end in ("[]", "{}", '""', "''"))
        is_wrong = not is_open and (value[0] in _SPECIAL or ": " in value or value.endswith(":"))
    if not is_wrong:
        return ""
    if len(value) > 80:
        return "; put the value in quotes"
    quoted = inner.replace("'", "''")
    return f"; put the value in quotes: {found['before'].strip()} '{quoted}'"


class _Reading:
    """Collects lines and errors from the nodes of a document."""

    def __init__(self, first_line: int, text: list[str]) -> None:
        self._first_line = first_line
        self._text = text
        self._lines: dict[Location, int] = {}
        self._problems: list[Problem] = []
        self._cut: list[Problem] = []

    def document(self, node: yaml.Node) -> YamlDocument:
        self._lines[()] = self._line_of_node(node)
        value = self._value_of_node(node, ())
        return YamlDocument(value, self._lines, tuple(self._problems), tuple(self._cut))

    def _line_of_node(self, node: yaml.Node) -> int:
        return int(node.start_mark.line) + self._first_line

    def _fault(self, node: yaml.Node, location: Location, message: str) -> None:
        self._problems.append(Problem(self._line_of_node(node), key_path(location) or "the file", message))

    def _value_of_node(self, node: yaml.Node, location: Location) -> object:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._lines[(*location, index)] = self._line_of_node(item)
                items.append(self._value_of_node(item, (*location, index)))
            return items
        if isinstance(node, yaml.ScalarNode) and (comment := self._text_behind(node)):
            message = f"ends before “{comment}”, a comment for YAML; put it in quotes if that belongs to it"
            self._cut.append(Problem(self._line_of_node(node), key_path(location) or "the file", message))
        if node.tag not in _PLAIN_TAGS:
            self._fault(
                node, location, f"has the tag {node.tag}; tags are not allowed; put the value in quotes"
            )
        text = str(node.value)
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return _WORDS.get(text.lower(), text)
            case "int" if _INTEGER.fullmatch(text):
                return int(text)
            case "float" if _DECIMAL.fullmatch(text):
                with suppress(ValueError):
                    return float(text)
        return text

    def _text_behind(self, node: yaml.ScalarNode) -> str:
        """Return a comment that looks like the end of the plain value before it; else ""."""
        end = node.end_mark
        if node.style is not None or node.tag != f"{_TAG}str" or end.line >= len(self._text):
            return ""
        found = _COMMENT.match(self._text[end.line], end.column)
        if found is None:
            return ""
        has_open_quote = any(node.value.count(quote) % 2 for quote in '"`')
        is_joined = not found["comment"][1:2].isspace()
        if has_open_quote or is_joined:
            return found["comment"][:_SHOWN_COMMENT]
        return ""

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        items: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, location, "has a key that is not a word")
                continue
            key = (*location, str(key_node.value))
            if key in self._lines:
                self._fault(key_node, key, f"is there twice, first in line {self._lines[key]}")
                continue
            self._lines[key] = self._line_of_node(key_node)
            items[str(key_node.value)] = self._value_of_node(value_node, key)
        return items


# Validate a YAML document with a model; pydantic's errors become errors with lines.


Model = TypeVar("Model", bound=FileModel)


def read_model(
    model: type[Model],
    document: YamlDocument,
    *,
    where: str,
    keys_at: Callable[[Location], type[FileModel]],
    also: Iterable[Problem] = (),
) -> Model:
    """Return the model that a document holds; an empty document holds its defaults.

    `keys_at` gives the model around an unknown key, for "did you mean"; `also` are faults found elsewhere.
    Raises `ConfigInvalid` with all faults, at most one for each key.
    """
    problems = [*document.problems, *also]
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        top = Problem(document.line_of(()), "", "the file must be a mapping of keys to values")
        raise ConfigInvalid([*problems, top], where=where)
    read: Model | None = None
    try:
        # Only the file's own spelling counts: `task_folder` is an unknown key, not another `taskFolder`.
        read = model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        for one in error.errors():
            location = _as_written(one["loc"], document)
            message = describe(one)
            if one["type"] == "extra_forbidden":
                hint = did_you_mean(str(location[-1]), file_keys(keys_at(one["loc"])))
                message = f"is not a known key{hint}"
            problems.append(Problem(document.line_of(location), key_path(location), message))
    if read is None or problems:
        # The first error of each key: an empty key, for example, also has the wrong type.
        by_key: dict[tuple[int | None, str], Problem] = {}
        for problem in problems:
            by_key.setdefault((problem.line, problem.key), problem)
        raise ConfigInvalid(list(by_key.values()), where=where)
    return read


def file_keys(model: type[FileModel]) -> list[str]:
    """Return the keys of a model as they are written in the file."""
    return [str(field.validation_alias or name) for name, field in model.model_fields.items()]


def _as_written(location: Location, document: YamlDocument) -> Location:
    """Return the place in the file, without what the model added to it.

    That is pydantic's mark for keys, `steps` of a pipeline that is a list, a check's type, and the list made
    of one check.
    """
    if location[-1] == "[key]":
        return location[:-1]
    at = 3  # of the key of a step
    if location[0] == "pipelines" and location[2:3] == ("steps",):
        if location[:2] in {one.place for one in written_pipelines(document.value) if one.is_mapping}:
            at = 4
        else:
            location = (*location[:2], *location[3:])
    if location[at : at + 1] != ("check",):
        return location
    check = location[: at + 1]
    if (*check, 0) in document.lines:
        check = location[: at + 2]
    return (*check, *location[at + 3 :])

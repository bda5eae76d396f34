"""The agent's settings file: JSON with the positions of its parts, changed without touching the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasks_app.config.faults import ConfigInvalid, Location, Problem, key_path
from tasks_app.config.pipeline import BUILT_IN_PIPELINE, load_project_config, step_to_json
from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER
from tasks_app.config.threshold import threshold_fault
from tasks_app.config.validation.findings import Finding, Severity, error, findings_in, warning
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.yaml_text import YamlDocument, read_yaml, written_pipelines
from tasks_app.core.text import storable

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_DEFAULT_INDENT = "  "


@dataclass(frozen=True)
class Span:
    """A member of an object, or an item of an array (then `key` is None), by its places in the text.

    It begins at `begin`, its value goes from `start` to `end`.
    """

    key: str | None
    begin: int
    start: int
    end: int


def read_json(text: str, *, where: str) -> object:
    """The value of a JSON text, with texts that can be shown. Raises ConfigInvalid with the line on which it
    stops being JSON.
    """
    try:
        value: object = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as fault:
        problem = Problem(fault.lineno, "", f"this is not JSON: {fault.msg.lower()} (column {fault.colno})")
        raise ConfigInvalid([problem], where=where) from fault
    except RecursionError:
        problem = Problem(None, "", "this is nested too deeply")
        raise ConfigInvalid([problem], where=where) from None
    except ValueError:
        problem = Problem(None, "", "this has a number that is too long")
        raise ConfigInvalid([problem], where=where) from None
    return storable(value)


def top(text: str) -> int:
    """Return where the outermost value begins."""
    return _skip(text, 1 if text.startswith("\ufeff") else 0)


def spans(text: str, at: int) -> list[Span]:
    """Return the members or items of the object or array whose bracket is at `at`; the text must be JSON."""
    found = []
    position = _skip(text, at + 1)
    while text[position] not in "]}":
        key, begin = None, position
        if text[at] == "{":
            key, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
        _, end = _DECODER.raw_decode(text, position)
        found.append(Span(key, begin, position, end))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return found


def member(text: str, at: int, key: str) -> Span | None:
    """Return the member that counts: the last one of that name, as every reader of JSON has it."""
    return next((span for span in reversed(spans(text, at)) if span.key == key), None)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def with_added(text: str, at: int, value: object, *, key: str | None = None) -> str:
    """The text with one more member (or item, without `key`) at the end of the object or array at `at`.

    It is laid out as its neighbours are: on a line of its own with their indentation, or beside them.
    """
    present = spans(text, at)
    gap = _outer(text, at) + _unit(text)
    if present:
        gap = text[at + 1 : present[0].begin]
    words = json.dumps(value, ensure_ascii=False, indent=_unit(text) if "\n" in gap else None)
    if key is not None:
        words = f"{json.dumps(key, ensure_ascii=False)}: {words}"
    words = words.replace("\n", gap)
    if not present:
        close = _skip(text, at + 1)
        return text[: at + 1] + gap + words + _outer(text, at) + text[close:]
    last = present[-1].end
    return text[:last] + "," + (gap or " ") + words + text[last:]


def _outer(text: str, at: int) -> str:
    """A line end and the indentation of the line in which `at` is."""
    before = text[text.rfind("\n", 0, at) + 1 : at].removeprefix("\ufeff")
    line_end = "\r\n" if "\r\n" in text else "\n"
    return line_end + before[: len(before) - len(before.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One level of indentation, as the outermost object has it."""
    present = spans(text, top(text))
    if not present:
        return _DEFAULT_INDENT
    gap = text[top(text) + 1 : present[0].begin]
    if "\n" in gap and not gap.endswith("\n"):
        return gap.rsplit("\n", 1)[1]
    return _DEFAULT_INDENT


def _skip(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


# `cat-herder.yaml`: its own faults, and its raw contents for the checks that look beyond it (P1, P2).
#
# The raw contents are looked at even where the file has faults: one wrong key must not hide a missing
# prompt.


CONFIG_FILE = "cat-herder.yaml"
OLD_CONFIG = "cat-herder.config.js"
_MISNAMED = ("cat-herder.yml", ".cat-herder.yaml", ".cat-herder.yml")


@dataclass(frozen=True)
class RawStep:
    """A step as it is written, with its place in the file; () for a step that is written nowhere."""

    location: Location
    values: Mapping[str, object]


@dataclass(frozen=True)
class SettingsFile:
    """The readable contents of `cat-herder.yaml`; `document` is None if it is not YAML."""

    document: YamlDocument | None
    findings: tuple[Finding, ...]

    @property
    def values(self) -> Mapping[str, object]:
        if self.document and isinstance(self.document.value, dict):
            return self.document.value
        return {}

    @property
    def task_folder(self) -> str | None:
        """None if the written value is not a folder of the repository."""
        faulty = any(one.problem.key == "taskFolder" for one in self.findings)
        if faulty:
            return None
        return str(self.values.get("taskFolder", DEFAULT_TASK_FOLDER))

    @property
    def pipelines(self) -> tuple[str, ...] | None:
        """Return the names that a task may use; None if they are not known."""
        if self.document is None:
            return None
        pipelines = self.values.get("pipelines")
        if isinstance(pipelines, dict):
            return tuple(map(str, pipelines))
        return (BUILT_IN_PIPELINE.name,)

    @property
    def threshold(self) -> int | None:
        """Return the project's interaction threshold; None if it is missing or invalid."""
        value = self.values.get("interactionThreshold")
        if isinstance(value, int) and threshold_fault(value) is None:
            return value
        return None

    def steps(self) -> Iterator[RawStep]:
        """Return every step of every pipeline that has the form of one."""
        if self.document is None:
            return
        if "pipelines" not in self.values:
            yield from (RawStep((), step_to_json(step)) for step in BUILT_IN_PIPELINE.steps)
        for pipeline in written_pipelines(self.values):
            yield from (RawStep(place, step) for place, step in pipeline.each_step())

    def line_of(self, location: Location) -> int | None:
        if self.document and location:
            return self.document.line_of(location)
        return None

    def problem(self, location: Location, message: str) -> Problem:
        return Problem(self.line_of(location), key_path(location), message)


def read_settings_file(context: RepositoryContext) -> SettingsFile:
    """`cat-herder.yaml` with all its faults; a repository without one has the defaults."""
    findings: list[Finding] = []
    try:
        text = read_text(context, CONFIG_FILE)
        if text is None:
            return SettingsFile(YamlDocument(None, {}, ()), tuple(_other_files(context)))
        document = read_yaml(text, where=CONFIG_FILE)
    except ConfigInvalid as fault:
        return SettingsFile(None, tuple(findings_in(fault, file=CONFIG_FILE)))
    if not context.is_committed(CONFIG_FILE):
        findings.append(warning(CONFIG_FILE, "this file is not in git: tasks will work with the defaults"))
    try:
        load_project_config(text, where=CONFIG_FILE)
    except ConfigInvalid as fault:
        findings += findings_in(fault, file=CONFIG_FILE)
    findings += [Finding(CONFIG_FILE, one, Severity.WARNING) for one in document.cut]
    settings = SettingsFile(document, tuple(findings))
    if settings.values.get("manageGitBranch") is False:
        # It may be meant, but agents then believe that they work on the branch of people.
        message = (
            "is false: agents work with the project's own branch checked out. "
            "What they make is published under cat-herder/TASK all the same"
        )
        problem = settings.problem(("manageGitBranch",), message)
        return SettingsFile(document, (*findings, Finding(CONFIG_FILE, problem, Severity.WARNING)))
    return settings


def _other_files(context: RepositoryContext) -> Iterator[Finding]:
    for name in _MISNAMED:
        if (context.root / name).is_file():
            yield error(name, f"this file is not read; its name must be {CONFIG_FILE}")
    if (context.root / OLD_CONFIG).is_file():
        message = f"this file is not read; import it with: cat-herder init_project --import {OLD_CONFIG}"
        yield warning(OLD_CONFIG, message)

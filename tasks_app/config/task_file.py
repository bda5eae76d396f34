"""Task files: one goal in Markdown, with optional YAML front matter (SPEC, "Words"; H1, H9, P3)."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from tasks_app.config.faults import ConfigInvalid, Problem, describe, shown
from tasks_app.config.fields import FileModel, Line, ModelName, Name, Threshold
from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.routing import Several
from tasks_app.config.yaml_text import MAX_BYTES, YamlDocument, read_model, read_yaml
from tasks_app.core.errors import BadInput
from tasks_app.core.text import shortened, strip_controls

MAX_TITLE = 200
#: Characters of front matter. It has a few short settings, and YAML is read slowly: a megabyte takes seconds.
MAX_FRONT_MATTER = 20_000

Resume = Literal["session", "replay"]
PriorityName = Literal["low", "normal", "high"]
#: User names, e-mail addresses and groups. Who they mean is looked up when a question is put to them.
NamesToAsk = Several[Line]

_FENCE = re.compile(r"---[ \t]*")
_END_FENCE = re.compile(r"(---|\.\.\.)[ \t]*")
_HEADING = re.compile(r" {0,3}#[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*")
_CODE_FENCE = re.compile(r" {0,3}(```|~~~)")
_NAMES: TypeAdapter[tuple[str, ...]] = TypeAdapter(NamesToAsk)
_LEADING_MARKS = re.compile(r"^(?:#{1,6}|[-*+>]|[0-9]+[.)])[ \t]+")


class FrontMatter(FileModel):
    """Settings of one task, between two lines of `---` at the top of its file."""

    title: Line | None = Field(default=None, description="Else the first heading, else the first line.")
    pipeline: Name | None = Field(default=None, description="The pipeline to run through.")
    interaction_threshold: Threshold | None = Field(default=None, description=SETTINGS["threshold"].help)
    model: ModelName | None = Field(default=None, description="The model for steps that name none.")
    resume: Resume = Field(
        default="session", description="Go on in the agent's session, or replay what it did."
    )
    priority: PriorityName = Field(
        default="normal", description="How early it has its turn among the tasks that wait."
    )
    ask: NamesToAsk = Field(
        default=(), description="Whom its questions are put to: user names, e-mail addresses, groups."
    )


@dataclass(frozen=True)
class TaskDefinition:
    """One goal. `body` is the Markdown below the front matter; None: the file says nothing about it."""

    title: str
    body: str
    pipeline: str | None = None
    threshold: int | None = None
    model: str | None = None
    resume: Resume = "session"
    priority: PriorityName = "normal"
    ask: tuple[str, ...] = ()


def read_task_file(path: Path) -> tuple[str, TaskDefinition]:
    """Return the text of a task file and what it says. Raises `BadInput` that names the path."""
    text = _read_file(path)
    return text, parse_task(text, where=str(path))


def parse_task(text: str, *, where: str) -> TaskDefinition:
    """Return what the text of a task file says.

    Raises `BadInput` (`ConfigInvalid` for front matter) with file and line.
    """
    lines = _normalised(text, where=where).split("\n")
    end = _front_matter_end(lines, where=where)
    document = _front_matter(lines[1:end], where=where)
    body = "\n".join(lines[end + 1 if end else 0 :]).strip("\n")
    also = [] if body.strip() else [Problem(len(lines), "", "the task has no text")]
    settings = read_model(FrontMatter, document, where=where, keys_at=lambda location: FrontMatter, also=also)
    title = strip_controls(settings.title or _title_in(body), one_line=True) or "Untitled task"
    return TaskDefinition(
        title=shortened(title, MAX_TITLE),
        body=body.rstrip() + "\n",
        pipeline=settings.pipeline,
        threshold=settings.interaction_threshold,
        model=settings.model,
        resume=settings.resume,
        priority=settings.priority,
        ask=settings.ask,
    )


def names_to_ask(names: Sequence[str], *, where: str) -> tuple[str, ...]:
    """Return names that a person typed, by the rules of `ask` in the front matter. Raises `BadInput`."""
    try:
        return tuple(_NAMES.validate_python(names))
    except ValidationError as error:
        raise BadInput(describe(error.errors()[0]), where=where) from None


def front_matter(text: str, *, where: str) -> YamlDocument:
    """The front matter as it is written, with the lines of its keys, whether or not its values are right.

    Raises `BadInput` if it is no YAML, or is never closed.
    """
    lines = _normalised(text, where=where).split("\n")
    return _front_matter(lines[1 : _front_matter_end(lines, where=where)], where=where)


def below_front_matter(text: str) -> str:
    """Return the text without its front matter, whatever that says; all of it if that is never closed."""
    try:
        lines = _normalised(text, where="").split("\n")
        end = _front_matter_end(lines, where="")
    except BadInput:
        return text
    return "\n".join(lines[end + 1 if end else 0 :])


def with_settings(text: str, wanted: Mapping[str, object], *, where: str) -> str:
    """The text with these settings in its front matter; what stands there with the same value stays as it is.

    Raises `ConfigInvalid` with the lines of those that stand there with another value.
    """
    document = front_matter(text, where=where)
    if not wanted or not isinstance(document.value, dict | None):
        return text
    written = document.value or {}
    if clashes := [key for key in wanted if key in written and written[key] != wanted[key]]:
        reason = "is {} in the text and {} beside it; keep one of them"
        raise ConfigInvalid(
            (
                Problem(document.line_of((key,)), key, reason.format(shown(written[key]), shown(wanted[key])))
                for key in clashes
            ),
            where=where,
        )
    missing = {key: value for key, value in wanted.items() if key not in written}
    if not missing:
        return text
    dumped = yaml.safe_dump(missing, sort_keys=False, allow_unicode=True, width=float("inf"))
    added = dumped.rstrip("\n").split("\n")
    lines = _normalised(text, where=where).split("\n")
    if end := _front_matter_end(lines, where=where):
        return "\n".join([*lines[:end], *added, *lines[end:]])
    return "\n".join(["---", *added, "---", *lines])


def _normalised(text: str, *, where: str) -> str:
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise BadInput(f"the task is larger than {MAX_BYTES:,} bytes", where=where)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if (at := text.find("\0")) >= 0:
        raise BadInput("there is a NUL character", where=f"{where}:{text.count(chr(10), 0, at) + 1}")
    return text


def _front_matter_end(lines: list[str], *, where: str) -> int:
    """Return the index of the line that closes the front matter; 0 without front matter."""
    if not _FENCE.fullmatch(lines[0]):
        return 0
    for index, line in enumerate(lines[1:], start=1):
        if _END_FENCE.fullmatch(line):
            return index
    raise BadInput("the front matter that begins here is never closed with ---", where=f"{where}:1")


def _front_matter(lines: list[str], *, where: str) -> YamlDocument:
    text = "\n".join(lines)
    if len(text) > MAX_FRONT_MATTER:
        raise BadInput(f"the front matter is longer than {MAX_FRONT_MATTER:,} characters", where=f"{where}:1")
    return read_yaml(text, where=where, first_line=2)


def _title_in(body: str) -> str:
    headings = (match[1] for line in _prose(body) if (match := _HEADING.fullmatch(line)))
    first_line = next(line.strip() for line in body.split("\n") if line.strip())
    return next(headings, _LEADING_MARKS.sub("", first_line))


def _prose(body: str) -> Iterator[str]:
    """Return the lines outside fenced code, where a `#` begins a heading and no comment."""
    fence = ""
    for line in body.split("\n"):
        mark = _CODE_FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1] == fence:
            fence = ""
        elif not fence:
            yield line


def _read_file(path: Path) -> str:
    try:
        # A pipe or a device would block or never end; look before opening.
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadInput("this is not a file", where=str(path))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"the task file cannot be read: {reason}", where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise BadInput(f"the file is larger than {MAX_BYTES:,} bytes", where=str(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput("this is not UTF-8 text", where=f"{path}:{line}") from error

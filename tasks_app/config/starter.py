"""The files that `init_project` writes, adapted to the repository."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import json_schema, load_project_config
from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER
from tasks_app.config.validation.permission import NEW_FILE, SETTINGS_FILE, has_permission
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.validation.runnable import MAKEFILES, make_targets
from tasks_app.config.validation.settings_file import CONFIG_FILE
from tasks_app.core.errors import BadInput
from tasks_app.prompting.instructions import SELF, repository_path

SCHEMA_FILE = "cat-herder.schema.json"

_TEMPLATES = "project"
_TASK_FILE = "tests-in-the-readme.md"
# What `npm init` writes where nobody has written a test yet.
_NO_TESTS = "no test specified"
_SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
_CHECK = "      check: {{type: shell, command: {command}}}\n"
_CHECK_TO_BE_FILLED_IN = (
    "      # check: {type: shell, command: make test}   # decides whether the step is done\n"
)


@dataclass(frozen=True)
class Choices:
    """Files that are wanted besides the settings and a first task.

    With `schema`, a copy of the JSON Schema is put beside cat-herder.yaml, which then names it: a relative
    path is all that an editor finds without a network and on everybody's machine.
    """

    prompts: bool = False
    schema: bool = False


@dataclass(frozen=True)
class StarterFile:
    """A file to be made at `name` in the repository. `satisfied` says why none is needed; empty: it is.

    `hint` is what to do if another file is in its place.
    """

    name: str
    text: str
    satisfied: str = ""
    hint: str = ""


def starter_files(context: RepositoryContext, choices: Choices) -> Iterator[StarterFile]:
    """Return every file, the settings first. Raises BadInput if what is there cannot be read."""
    settings = settings_text(context, schema=choices.schema)
    yield StarterFile(CONFIG_FILE, settings)
    if choices.schema:
        yield StarterFile(SCHEMA_FILE, json.dumps(json_schema(), ensure_ascii=False, indent=2) + "\n")
    yield _first_task(context, read_text(context, CONFIG_FILE) or settings)
    yield _permission(context)
    if choices.prompts:
        for path in sorted(context.shipped_steps.glob("*.md")):
            if path.stem != SELF:  # the task itself is that prompt; a repository's file would not count
                yield StarterFile(repository_path(path.stem), path.read_text(encoding="utf-8"))


def test_command(context: RepositoryContext) -> str | None:
    """Return how the repository's tests are run, where a Makefile or package.json says so."""
    for name in MAKEFILES:
        makefile = read_text(context, name, follow=True)
        if makefile and "test" in (make_targets(makefile) or ()):
            return "make test"
    try:
        package = json.loads(read_text(context, "package.json", follow=True) or "{}")
        script = package["scripts"]["test"]
    except (BadInput, ValueError, LookupError, TypeError):
        return None
    if _NO_TESTS in str(script):
        return None
    return "npm test"


def settings_text(context: RepositoryContext, *, schema: bool = False, alone: bool = False) -> str:
    """A first cat-herder.yaml that fits the repository.

    `alone`: no first task comes with it, so a task folder that does not exist is only a comment.
    """
    text = _template_text(context, CONFIG_FILE)
    if alone and not (context.root / DEFAULT_TASK_FOLDER).is_dir():
        text = text.replace("\ntaskFolder:", "\n# taskFolder:")
    if schema:
        text = text.replace("{{schema}}", _SCHEMA_LINE)
    check = _CHECK_TO_BE_FILLED_IN
    if command := test_command(context):
        check = _CHECK.format(command=command)
    return text.replace("{{schema}}", "").replace("{{check}}", check)


def _first_task(context: RepositoryContext, settings: str) -> StarterFile:
    """Return the first task, in the task folder that the settings name; not beside tasks that are there."""
    try:
        config = load_project_config(settings)
        folder, pipelines = config.task_folder, [pipeline.name for pipeline in config.pipelines]
    except ConfigInvalid:
        folder, pipelines = DEFAULT_TASK_FOLDER, []
    text = _template_text(context, "task.md")
    if "quick" not in pipelines:
        text = text.replace("pipeline: quick\n", "")
    name = f"{folder.rstrip('/')}/{_TASK_FILE}"
    there = any(path.name != _TASK_FILE for path in (context.root / folder).glob("*.md"))
    return StarterFile(name, text, satisfied="there are tasks in that folder" if there else "")


def _permission(context: RepositoryContext) -> StarterFile:
    try:
        text = read_text(context, SETTINGS_FILE)
        granted = text is not None and has_permission(text)
    except BadInput:
        granted = False
    return StarterFile(
        SETTINGS_FILE,
        NEW_FILE,
        satisfied="it permits the agent to ask" if granted else "",
        hint="`cat-herder validate --fix` adds what it lacks",
    )


def _template_text(context: RepositoryContext, name: str) -> str:
    return (context.prompts / _TEMPLATES / name).read_text(encoding="utf-8")


# Write files into a repository without changing existing ones.


class Outcome(StrEnum):
    """The result for one file."""

    MADE = "made"
    THERE = "there already"  # the same, or something that serves as well
    LEFT = "left alone"  # something else is in its place


@dataclass(frozen=True)
class Written:
    """A file and its result; `remark` says why, or what to do."""

    name: str
    outcome: Outcome
    remark: str = ""


def write_all(files: Iterable[StarterFile], context: RepositoryContext, *, dry_run: bool) -> list[Written]:
    """Make each file that is not there; with `dry_run`, only say what would become of it.

    Raises BadInput if a folder leads out of the repository or cannot be written.
    """
    return [_written(file, context, dry_run=dry_run) for file in files]


def _written(file: StarterFile, context: RepositoryContext, *, dry_run: bool) -> Written:
    path = context.root / file.name
    if file.satisfied:
        return Written(file.name, Outcome.THERE, file.satisfied)
    if context.leads_out(path.parent):
        raise BadInput("its folder is a link that leads out of the repository", where=file.name)
    try:
        made = not os.path.lexists(path) if dry_run else _write_new(path, file.text)
    except OSError as fault:
        raise BadInput(f"the file cannot be written: {fault.strerror}", where=file.name) from fault
    if made:
        return Written(file.name, Outcome.MADE)
    if path.is_file() and path.read_bytes() == file.text.encode():
        return Written(file.name, Outcome.THERE)
    return Written(file.name, Outcome.LEFT, file.hint)


def _write_new(path: Path, text: str) -> bool:
    """False if something of that name is there, a link that leads nowhere included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True

"""The task files of a repository: all of them can be read, and name what exists (P3, R5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks_app.config.faults import ConfigInvalid, did_you_mean, shown
from tasks_app.config.task_file import front_matter, parse_task
from tasks_app.config.threshold import threshold_fault
from tasks_app.config.validation.findings import Finding, Severity, error, findings_in, warning
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.validation.settings_file import CONFIG_FILE, SettingsFile
from tasks_app.config.validation.steps import unknown_model
from tasks_app.config.yaml_text import YamlDocument
from tasks_app.core.errors import BadInput


@dataclass(frozen=True)
class TaskFile:
    """A task file with its faults; `threshold` is its own, None if it has none that is right."""

    name: str
    findings: tuple[Finding, ...]
    threshold: int | None = None
    threshold_line: int | None = None


def folder_findings(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    """Faults of the task folder itself."""
    folder = settings.task_folder
    if folder is None:
        return
    path = context.root / folder
    problem = settings.problem(("taskFolder",), "")
    if os.path.lexists(path) and context.leads_out(path):
        message = f"is {shown(folder)}, which leads out of the repository"
    elif path.exists() and not path.is_dir():
        message = f"is {shown(folder)}, which is no folder"
    elif not path.exists() and "taskFolder" in settings.values:
        message = f"is {shown(folder)}, which does not exist yet"
        yield warning(CONFIG_FILE, message, line=problem.line, key=problem.key)
        return
    else:
        return
    yield error(CONFIG_FILE, message, line=problem.line, key="taskFolder")


def read_task_files(settings: SettingsFile, context: RepositoryContext) -> list[TaskFile]:
    """Return every `*.md` in the task folder and its sequences; what begins with `_` or `.` is left out."""
    folder = settings.task_folder
    if folder is None or context.leads_out(context.root / folder):
        return []
    return [_task_file(name, settings, context) for name in _markdown_names(context.root, folder)]


def _markdown_names(root: Path, folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(root / folder):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        # A folder of that name is no task, but somebody meant it to be one.
        for name in sorted([*files, *(name for name in folders if name.endswith(".md"))]):
            if name.endswith(".md") and not name.startswith(("_", ".")):
                yield (Path(place) / name).relative_to(root).as_posix()


def _task_file(name: str, settings: SettingsFile, context: RepositoryContext) -> TaskFile:
    try:
        text = read_text(context, name)
    except ConfigInvalid as fault:
        return TaskFile(name, tuple(findings_in(fault, file=name)))
    if text is None:  # gone since the folder was listed
        return TaskFile(name, ())
    document = _front_matter(text, name)
    cut = (Finding(name, one, Severity.WARNING) for one in document.cut)
    findings = (*_own_faults(text, name), *_references(name, document, settings), *cut)
    threshold = _front_matter_value(document, "interactionThreshold")
    if not isinstance(threshold, int) or threshold_fault(threshold):
        return TaskFile(name, findings)
    return TaskFile(name, findings, threshold, document.line_of(("interactionThreshold",)))


def _own_faults(text: str, name: str) -> Iterator[Finding]:
    try:
        parse_task(text, where=name)
    except BadInput as fault:
        yield from findings_in(fault, file=name)


def _front_matter(text: str, name: str) -> YamlDocument:
    try:
        return front_matter(text, where=name)
    except BadInput:
        return YamlDocument(None, {}, ())


def _references(name: str, document: YamlDocument, settings: SettingsFile) -> Iterator[Finding]:
    pipeline, known = _front_matter_value(document, "pipeline"), settings.pipelines
    if isinstance(pipeline, str) and known is not None and pipeline not in known:
        listed = f"known are: {', '.join(known) or 'none'}{did_you_mean(pipeline, known)}"
        message = f"is {shown(pipeline)}, which is no pipeline of {CONFIG_FILE}; {listed}"
        yield error(name, message, line=document.line_of(("pipeline",)), key="pipeline")
    if message := unknown_model(_front_matter_value(document, "model")) or "":
        yield warning(name, message, line=document.line_of(("model",)), key="model")


def _front_matter_value(document: YamlDocument, key: str) -> object:
    return document.value.get(key) if isinstance(document.value, dict) else None

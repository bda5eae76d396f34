"""Check what steps need beyond `cat-herder.yaml`: prompts, programs, tools, models (P2, P5)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks_app.agent.gate.path_patterns import matches, path_pattern_fault
from tasks_app.agent.gate.patterns import CALL_PATTERN, READING, WRITING
from tasks_app.agent.tools import MCP
from tasks_app.config.faults import ConfigInvalid, Location, did_you_mean, shown
from tasks_app.config.task_file import front_matter, parse_task
from tasks_app.config.threshold import threshold_fault
from tasks_app.config.validation.findings import Finding, Severity, error, findings_in, warning
from tasks_app.config.validation.instructions import command_findings
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.validation.runnable import broken_package, complaints, package_folders
from tasks_app.config.validation.settings_file import CONFIG_FILE, RawStep, SettingsFile
from tasks_app.config.yaml_text import YamlDocument
from tasks_app.core.errors import BadInput
from tasks_app.core.files import path_inside
from tasks_app.core.types import PLAN_FILE
from tasks_app.prompting.instructions import SELF, load_step_instructions, repository_path

_FAMILY = "(?:opus|sonnet|haiku|fable|mythos)"
#: `sonnet`, `opus[1m]`, `claude-sonnet-4-5-20250929`, `us.anthropic.claude-3-5-haiku-…-v1:0`, `claude-…@…`.
_MODEL = re.compile(
    rf"(?:default|best|opusplan|{_FAMILY}|(?:[a-z-]+\.)*claude-(?:[0-9][0-9-]*-)?{_FAMILY}(?:[-@.:][\w.:@-]+)?)"
    r"(?:\[1m\])?",
    re.IGNORECASE,
)
_FOREIGN_MODEL = re.compile(r"arn:.+|.+/.+")

_RULE = re.compile(r"(?P<tool>[A-Za-z][\w-]*\*?)(?P<rest>\((?P<what>.*)\))?", re.DOTALL)


def step_findings(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    """Faults of every step, each at its own line of cat-herder.yaml or in the file that it names."""
    yield from _model(settings, ("model",), settings.values.get("model"))
    whole_file = RawStep((), {"askBefore": settings.values.get("askBefore")})
    yield from _unmatched_patterns(settings, whole_file, context)
    for step in settings.steps():
        yield from _prompt_findings(settings, step, context)
        yield from _model(settings, (*step.location, "model"), step.values.get("model"))
        for index, rule in enumerate(_entries(step.values.get("allowedTools"))):
            location = (*step.location, "allowedTools", index)
            if isinstance(rule, str) and rule.strip() and (message := malformed(rule)):
                yield Finding(CONFIG_FILE, settings.problem(location, message))
        yield from _unmatched_patterns(settings, step, context)
        for location, check in _checks(step):
            yield from _check_findings(settings, location, check, context)


def unknown_model(name: object) -> str | None:
    """Return why a model's name looks wrong; None if it looks right or is not a name."""
    if not isinstance(name, str) or _MODEL.fullmatch(name) or _FOREIGN_MODEL.fullmatch(name):
        return None
    hint = did_you_mean(name, ("opus", "sonnet", "haiku"))
    return f"is {shown(name)}, which is no model of a known family{hint}"


def _model(settings: SettingsFile, location: Location, name: object) -> Iterator[Finding]:
    if message := unknown_model(name):
        yield Finding(CONFIG_FILE, settings.problem(location, message), Severity.WARNING)


def _prompt_findings(settings: SettingsFile, step: RawStep, context: RepositoryContext) -> Iterator[Finding]:
    command = step.values.get("command")
    if not isinstance(command, str) or command == SELF:
        return
    # A fault of the key may be reported already; `self` beside other steps is another fault.
    problem = settings.problem((*step.location, "command"), "")
    if any(replace(one.problem, message="") == problem for one in settings.findings):
        return
    place = repository_path(command)
    try:
        text = read_text(context, place, follow=True)
    except ConfigInvalid as fault:
        yield from findings_in(fault, file=place)
        return
    try:
        load_step_instructions(command, repository_text=text, shipped_dir=context.shipped_steps)
    except BadInput as fault:
        if text is None:
            message = f"is {shown(command)}; {fault.message}"
            yield Finding(CONFIG_FILE, settings.problem((*step.location, "command"), message))
        else:
            yield error(place, fault.message, line=1)
        return
    if text is not None:
        if not (context.is_committed(place) or place != path_inside(context.root, place)):
            yield warning(place, "this file is not in git: a task's clone will not have it")
        yield from command_findings(place, text)


def _entries(value: object) -> Sequence[object]:
    """Return the entries of a list; none if the value is not one."""
    if isinstance(value, list | tuple):
        return value
    return ()


def _unmatched_patterns(
    settings: SettingsFile, step: RawStep, context: RepositoryContext
) -> Iterator[Finding]:
    """Patterns of files that match no file of the repository: a typing error, or meant for new files."""
    if context.tracked is None:
        return
    made = {PLAN_FILE, *(check.get("path") for _, check in _checks(step))}
    for location, pattern in _file_patterns(step):
        files = (*context.tracked, *(path for path in made if isinstance(path, str)))
        if path_pattern_fault(pattern) or any(matches(file, pattern) for file in files):
            continue
        folder, hint = f"{pattern.rstrip('/')}/", ", which is right only for new files"
        if any(file.startswith(folder) for file in context.tracked):
            hint = f"; did you mean {shown(folder)}?"
        message = f"is {shown(pattern)} and matches no file of the repository{hint}"
        yield Finding(CONFIG_FILE, settings.problem(location, message), Severity.WARNING)


def _file_patterns(step: RawStep) -> Iterator[tuple[Location, str]]:
    access = step.values.get("fileAccess")
    if isinstance(access, Mapping):
        for index, glob in enumerate(_entries(access.get("allowWrite"))):
            if isinstance(glob, str):
                yield (*step.location, "fileAccess", "allowWrite", index), glob
    for key in ("askBefore", "allowedTools"):
        for index, rule in enumerate(_entries(step.values.get(key))):
            if not isinstance(rule, str) or not (found := CALL_PATTERN.match(rule)):
                continue
            if found[2] and found[1] in {**WRITING, **READING}:
                yield (*step.location, key, index), found[2]


def malformed(rule: str) -> str | None:
    """Return what is wrong with the form of a permission such as `Bash(npm test:*)`; None if nothing is."""
    match = _RULE.fullmatch(rule)
    if match is None:
        return f"must be a tool or Tool(what it may do), such as Bash(npm test:*), not {shown(rule)}"
    if match["rest"] and not (match["what"] or "").strip():
        return f"has nothing between its parentheses: {shown(rule)}"
    if match["what"] and ":*" in match["what"].removesuffix(":*") and match["tool"] == "Bash":
        return f"has ':*' in the middle, where it does not count; it belongs at the end: {shown(rule)}"
    if match["tool"].endswith("*") and not match["tool"].startswith(MCP):
        return f"has '*' behind the name of a tool: {shown(rule)}"
    return None


def _checks(step: RawStep) -> Iterator[tuple[Location, Mapping[str, object]]]:
    check = step.values.get("check")
    if isinstance(check, Mapping):
        yield (*step.location, "check"), check
    for index, one in enumerate(_entries(check)):
        if isinstance(one, Mapping):
            yield (*step.location, "check", index), one


def _check_findings(
    settings: SettingsFile, location: Location, check: Mapping[str, object], context: RepositoryContext
) -> Iterator[Finding]:
    path, command = check.get("path"), check.get("command")
    if check.get("type") == "fileExists" and isinstance(path, str):
        outside = "\0" in path or ".." in path or path.startswith("/")  # is reported elsewhere
        if not outside and context.leads_out(context.root / path):
            message = f"is {shown(path)}, which leads out of the repository through a link"
            yield Finding(CONFIG_FILE, settings.problem((*location, "path"), message))
    if check.get("type") == "shell" and isinstance(command, str) and "\0" not in command:
        problem_at = (*location, "command")
        has_setup = bool(settings.values.get("setup"))
        for one in complaints(command, context=context, has_setup=has_setup):
            yield Finding(CONFIG_FILE, settings.problem(problem_at, one.message), one.severity)
        for folder in package_folders(command, context=context):
            yield from broken_package(context, folder)


# The task files of a repository: all of them can be read, and name what exists (P3, R5).


@dataclass(frozen=True)
class TaskFile:
    """A task file with its faults; `threshold` is its own, None if missing or invalid."""

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


def calendar_findings(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    """Yield what is wrong with the on-call calendar, if it is a file of the repository."""
    source = settings.values.get("onCall")
    if not isinstance(source, str) or "://" in source or "\0" in source or ".." in source:
        return
    path = context.root / source
    message = ""
    if os.path.lexists(path) and (context.leads_out(path) or not path.is_file() or path.is_symlink()):
        message = f"is {shown(source)}, which is no regular file"
    elif not path.exists():
        message = f"is {shown(source)}, which does not exist yet"
    if message:
        problem = settings.problem(("onCall",), "")
        yield warning(CONFIG_FILE, message, line=problem.line, key=problem.key)


def read_task_files(settings: SettingsFile, context: RepositoryContext) -> list[TaskFile]:
    """Return every `*.md` in the task folder and its sequences; what begins with `_` or `.` is left out."""
    folder = settings.task_folder
    if folder is None or context.leads_out(context.root / folder):
        return []
    names = []
    for place, folders, files in os.walk(context.root / folder):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        # A folder of that name is not a task, but was meant to be one.
        for name in sorted([*files, *(name for name in folders if name.endswith(".md"))]):
            if name.endswith(".md") and not name.startswith(("_", ".")):
                names.append((Path(place) / name).relative_to(context.root).as_posix())
    return [_task_file(name, settings, context) for name in names]


def _task_file(name: str, settings: SettingsFile, context: RepositoryContext) -> TaskFile:
    try:
        text = read_text(context, name)
    except ConfigInvalid as fault:
        return TaskFile(name, tuple(findings_in(fault, file=name)))
    if text is None:  # gone since the folder was listed
        return TaskFile(name, ())
    findings: list[Finding] = []
    try:
        parse_task(text, where=name)
    except BadInput as fault:
        findings += findings_in(fault, file=name)
    try:
        document = front_matter(text, where=name)
    except BadInput:
        document = YamlDocument(None, {}, ())
    values = document.value if isinstance(document.value, dict) else {}
    pipeline, known = values.get("pipeline"), settings.pipelines
    if isinstance(pipeline, str) and known is not None and pipeline not in known:
        listed = f"known are: {', '.join(known) or 'none'}{did_you_mean(pipeline, known)}"
        message = f"is {shown(pipeline)}, which is no pipeline of {CONFIG_FILE}; {listed}"
        findings.append(error(name, message, line=document.line_of(("pipeline",)), key="pipeline"))
    if why := unknown_model(values.get("model")):
        findings.append(warning(name, why, line=document.line_of(("model",)), key="model"))
    findings += [Finding(name, one, Severity.WARNING) for one in document.cut]
    threshold = values.get("interactionThreshold")
    if not isinstance(threshold, int) or threshold_fault(threshold):
        return TaskFile(name, tuple(findings))
    return TaskFile(name, tuple(findings), threshold, document.line_of(("interactionThreshold",)))

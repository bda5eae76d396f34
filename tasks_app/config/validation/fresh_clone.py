"""Warn of what a task's workspace lacks as a fresh clone, with what to write (M5).

Each warning says what is missing and which lines of `cat-herder.yaml` bring it. Nothing here is an error: a
task may not need it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tasks_app.config.faults import ConfigInvalid, shown
from tasks_app.config.fields import as_list
from tasks_app.config.validation.findings import Finding, Severity, warning
from tasks_app.config.validation.repository_context import RepositoryContext, read_text
from tasks_app.config.validation.settings_file import CONFIG_FILE, SettingsFile, read_json

GITMODULES, GITATTRIBUTES = ".gitmodules", ".gitattributes"
#: The files at the top of a repository that are read here.
FILES_READ = (GITMODULES, "package.json", "pyproject.toml")
_MOST_ATTRIBUTES = 50
_SHOWN = 5

_SUBMODULE_PATH = re.compile(r"^[ \t]*path[ \t]*=[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_LFS = re.compile(r"^(?![ \t]*#).*[ \t]filter=lfs(?:[ \t]|$)")

#: Lock files with the command that installs what they name, the most specific first.
_NODE = (
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
    ("bun.lock", "bun install --frozen-lockfile"),
    ("bun.lockb", "bun install --frozen-lockfile"),
    ("yarn.lock", "yarn install --immutable"),
    ("npm-shrinkwrap.json", "npm ci"),
    ("package-lock.json", "npm ci"),
)
_PYTHON = (
    ("uv.lock", "uv sync"),
    ("poetry.lock", "poetry install"),
    ("Pipfile.lock", "pipenv sync"),
    ("Pipfile", "pipenv install"),
    ("requirements.txt", "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"),
)
_PYPROJECT = "python3 -m venv .venv && .venv/bin/pip install -e ."

#: Files in which version managers name the version of a tool, with the toolchain that has its versions.
_VERSIONS = {
    ".nvmrc": ("Node.js", "node"),
    ".node-version": ("Node.js", "node"),
    ".python-version": ("Python", "python"),
    ".ruby-version": ("Ruby", ""),
    ".java-version": ("Java", ""),
    ".sdkmanrc": ("Java", "java"),
    "rust-toolchain.toml": ("Rust", "rust"),
    "rust-toolchain": ("Rust", "rust"),
    ".tool-versions": ("several tools", ""),
    "mise.toml": ("several tools", ""),
}
_LABELS = "give workers that have it a label and write `runsOn: [LABEL]`"
#: Programs that read such files and install the version themselves.
_INSTALLERS = re.compile(r"\b(?:asdf|fnm|mise|nvm|poetry|proto|pyenv|rbenv|rustup|sdk|uv|volta)\b")


@dataclass(frozen=True)
class _Install:
    """The file that names what a program needs, what a fresh clone lacks of it, and the command for it."""

    file: str
    lacking: str
    command: str


def fresh_clone_findings(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    """Warnings about what people have in their checkout and a task's workspace does not have."""
    if settings.document is None:  # what the file says is not known
        return
    if not settings.values.get("submodules"):
        yield from _submodules(context)
    if not settings.values.get("lfs"):
        yield from _large_files(context)
    if not settings.values.get("setup"):
        yield from _not_installed(settings, context)
    yield from _missing_keys(settings, context)
    yield from _versions(settings, context)
    yield from _missing_on_this_machine(settings, context)


def _submodules(context: RepositoryContext) -> Iterator[Finding]:
    text = _committed_text(GITMODULES, context)
    if names := _SUBMODULE_PATH.findall(text):
        listed = ", ".join(names[:_SHOWN])
        if len(names) > _SHOWN:
            listed += f" and {len(names) - _SHOWN} more"
        message = (
            f"the folders of submodules ({listed}) are empty in a task's workspace; if tasks need"
            f" them, write `submodules: true` into {CONFIG_FILE}"
        )
        yield warning(GITMODULES, message, line=1)


def _large_files(context: RepositoryContext) -> Iterator[Finding]:
    names = [GITATTRIBUTES]
    if context.tracked is not None:
        found = (name for name in context.tracked if name.rpartition("/")[2] == GITATTRIBUTES)
        names = sorted(found, key=lambda name: (name.count("/"), name))[:_MOST_ATTRIBUTES]
    for name in names:
        for number, line in enumerate(_committed_text(name, context).splitlines(), start=1):
            if _LFS.match(line):
                message = (
                    "files of Git LFS are only pointers in a task's workspace; if tasks need their contents,"
                    f" write `lfs: true` into {CONFIG_FILE}"
                )
                yield warning(name, message, line=number)
                return


def _not_installed(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    installs = [one for one in (_node(context), _python(settings, context)) if one]
    commands = [one.command for one in installs]
    value = ", ".join(commands)
    if len(commands) > 1:
        value = f"[{value}]"
    for one in installs:
        message = f"a task's workspace has no {one.lacking}; if tasks need it, write `setup: {value}`"
        yield warning(one.file, f"{message} into {CONFIG_FILE}")


def _node(context: RepositoryContext) -> _Install | None:
    if not context.has("package.json") or context.has_folder("node_modules"):
        return None
    for name, command in _NODE:
        if context.has(name):
            return _Install("package.json", "node_modules", command)
    try:
        package = read_json(_committed_text("package.json", context), where="package.json")
    except ConfigInvalid:
        return None
    names = ("dependencies", "devDependencies", "optionalDependencies", "workspaces")
    if isinstance(package, dict) and any(package.get(name) for name in names):
        return _Install("package.json", "node_modules", "npm install")
    return None


def _python(settings: SettingsFile, context: RepositoryContext) -> _Install | None:
    for name, command in _PYTHON:
        if context.has(name):
            return _Install(name, "Python environment", command)
    if not context.has("pyproject.toml"):
        return None
    try:
        project = tomllib.loads(_committed_text("pyproject.toml", context))
    except tomllib.TOMLDecodeError:
        return None
    # Else it has only settings of tools.
    tools = project.get("tool")
    is_installable = "project" in project or (isinstance(tools, dict) and "poetry" in tools)
    has_all = "python" in _toolchains(settings) and not _requires_packages(project)
    if has_all or not is_installable:
        return None
    return _Install("pyproject.toml", "Python environment", _PYPROJECT)


def _requires_packages(project: Mapping[str, object]) -> bool:
    """Return whether a pyproject.toml names packages to install: without any, an interpreter is enough."""
    table = project.get("project")
    names = ("dependencies", "optional-dependencies", "dynamic")
    return (
        not isinstance(table, dict)
        or any(table.get(name) for name in names)
        or bool(project.get("dependency-groups"))
    )


def _missing_keys(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    """Warnings about files that tell caches of the setup apart, and that no task's clone has."""
    place = ("setup", "cache", "key")
    setup = settings.values.get("setup")
    if not isinstance(setup, dict) or not isinstance(cache := setup.get("cache"), dict):
        return
    names = as_list(cache.get("key"))
    if not isinstance(names, list):
        return
    for index, name in enumerate(names):
        if isinstance(name, str) and not context.has(name):
            message = (
                f"names {shown(name)}, which is no committed file: the cache stays the same, whatever changes"
            )
            yield Finding(CONFIG_FILE, settings.problem((*place, index), message), Severity.WARNING)


def _versions(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    if _INSTALLERS.search(str(settings.values.get("setup") or "")):
        return
    chosen = _toolchains(settings)
    for name, (tool, toolchain) in _VERSIONS.items():
        if context.has(name) and toolchain not in chosen:
            fix = _LABELS
            if toolchain:
                fix = f"write `toolchains: [{', '.join([*chosen, toolchain])}]`"
            message = (
                f"names a version of {tool}, but a task's workspace has what its worker has on its PATH; if"
                f" tasks need that version, have `setup` install it, or {fix} into {CONFIG_FILE}"
            )
            yield warning(name, message)


def _missing_on_this_machine(settings: SettingsFile, context: RepositoryContext) -> Iterator[Finding]:
    """Warnings about toolchains and readable folders that this machine lacks; another may have them."""
    if not context.toolchains:
        return
    for index, name in enumerate(_toolchains(settings)):
        if why := context.toolchains.get(name, "it is not one that CATHERDER_TOOLCHAINS lists"):
            message = f"is {shown(name)}, which this machine does not have: {why}"
            yield Finding(CONFIG_FILE, settings.problem(("toolchains", index), message), Severity.WARNING)
    for index, name in enumerate(_toolchains(settings, "readable")):
        if why := context.toolchains.get(name.rstrip("/"), "CATHERDER_READABLE does not list it"):
            message = f"is {shown(name)}, which this machine does not show: {why}"
            yield Finding(CONFIG_FILE, settings.problem(("readable", index), message), Severity.WARNING)


def _toolchains(settings: SettingsFile, key: str = "toolchains") -> list[str]:
    names = as_list(settings.values.get(key))
    if isinstance(names, list):
        return [name for name in names if isinstance(name, str)]
    return []


def _committed_text(name: str, context: RepositoryContext) -> str:
    """Return the text of a file; "" if it is missing, not committed or cannot be read."""
    if not context.is_committed(name):
        return ""
    with suppress(ConfigInvalid):
        return read_text(context, name) or ""
    return ""

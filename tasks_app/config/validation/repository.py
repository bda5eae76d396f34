"""Validate a whole repository and report all errors (P1, P2, P5, H2, H12, R5)."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER
from tasks_app.config.validation.findings import Finding, Report, error, findings_in
from tasks_app.config.validation.fresh_clone import FILES_READ, GITATTRIBUTES, fresh_clone_findings
from tasks_app.config.validation.git_state import GitState, git_state
from tasks_app.config.validation.instructions import instruction_findings
from tasks_app.config.validation.permission import SETTINGS_FILE, permission_findings
from tasks_app.config.validation.repository_context import RepositoryContext, decoded
from tasks_app.config.validation.runnable import MAKEFILES
from tasks_app.config.validation.settings_file import CONFIG_FILE, SettingsFile, read_settings_file
from tasks_app.config.validation.steps import (
    TaskFile,
    calendar_findings,
    folder_findings,
    read_task_files,
    step_findings,
)
from tasks_app.config.yaml_text import MAX_BYTES
from tasks_app.core.amounts import counted
from tasks_app.core.files import temporary_folder
from tasks_app.git import Repository, TreeFile, blob_bytes, committed_tree
from tasks_app.prompting.instructions import (
    MORE_FILES,
    ROOT_FILES,
    RULES,
    ProjectInstructions,
    intro_faults,
    repository_path,
)

_INTRO = "interaction-intro.md"


def validate(
    root: Path,
    *,
    prompts: Path,
    threshold: int = 0,
    with_git: bool = True,
    toolchains: Mapping[str, str] | None = None,
) -> Report:
    """Return everything that is wrong with the repository at `root`.

    `prompts` is the folder of the portal's own prompts, `threshold` the installation's interaction
    threshold, `toolchains` what this machine has, as in RepositoryContext. Without `with_git` the commit is
    not looked at.
    """
    git = git_state(root) if with_git else GitState(())
    context = RepositoryContext(
        root, prompts=prompts, threshold=threshold, tracked=git.tracked, toolchains=toolchains or {}
    )
    return report_on(context, git.findings)


def report_on(context: RepositoryContext, findings: Iterable[Finding] = ()) -> Report:
    """Return what is wrong with the files of a repository, besides what was found already."""
    settings = read_settings_file(context)
    tasks = read_task_files(settings, context)
    found = [
        *findings,
        *settings.findings,
        *step_findings(settings, context),
        *folder_findings(settings, context),
        *calendar_findings(settings, context),
        *fresh_clone_findings(settings, context),
        *instruction_findings(context),
    ]
    for task in tasks:
        found += task.findings
    if why := why_it_may_ask(settings, tasks, context):
        found += permission_findings(context, why=why)
    found += _intro(context.prompts / _INTRO)
    own = CONFIG_FILE
    if not (context.root / CONFIG_FILE).exists():
        own = f"no {CONFIG_FILE} (the defaults hold)"
    pipelines, steps = len(settings.pipelines or ()), len(list(settings.steps()))
    counts = (counted(pipelines, "pipeline"), counted(steps, "step"), counted(len(tasks), "task file"))
    return Report.of(found, looked_at=", ".join([own, *counts]))


def why_it_may_ask(
    settings: SettingsFile, tasks: Sequence[TaskFile], context: RepositoryContext
) -> str | None:
    """Return where a threshold above 0 comes from, as the rest of a sentence; None without one."""
    project = settings.threshold
    if project:
        line = settings.line_of(("interactionThreshold",))
        return f"interactionThreshold is {project} in {CONFIG_FILE}:{line}"
    for task in tasks:
        if task.threshold:
            return f"interactionThreshold is {task.threshold} in {task.name}:{task.threshold_line}"
    if context.threshold and "interactionThreshold" not in settings.values:
        return f"CATHERDER_INTERACTION_THRESHOLD is {context.threshold}"
    return None


def may_ask(context: RepositoryContext) -> bool:
    """Return whether any task of the repository may ask."""
    settings = read_settings_file(context)
    return why_it_may_ask(settings, read_task_files(settings, context), context) is not None


def _intro(path: Path) -> Iterator[Finding]:
    """H2: the instructions for asking are a file that people edit."""
    name = str(path)
    try:
        text = decoded(path.read_bytes(), name=name)
    except ConfigInvalid as fault:
        yield from findings_in(fault, file=name)
        return
    except OSError as fault:
        yield error(name, f"the file cannot be read: {fault.strerror}")
        return
    for one in intro_faults(text):
        yield error(name, one.message, line=one.line)


# Validate a commit of the portal's own repository, without a checkout and without running anything.
#
# What is looked at lies in files, so the few files of the commit that matter are laid out in a folder for
# the while: those that are read, those that the settings name, and links. git only hands out their contents.


_READ = {CONFIG_FILE, SETTINGS_FILE, *FILES_READ, *ROOT_FILES, *MORE_FILES}
_READ_ANYWHERE = {"package.json", GITATTRIBUTES, *MAKEFILES}
_PROMPTS = f"{PurePosixPath(repository_path('x')).parent}/"
_LINKED_FOLDERS = (".claude", ".claude/commands", ".claude/rules")
#: More than that is laid out empty, which its findings then show.
_MOST_READ = 300
_MOST_LAID = 20_000
#: In place of every link that leads out: nothing of this machine is to be found through it.
_OUTSIDE = "/nowhere/outside-the-repository"


def validate_commit(
    repository: Repository,
    commit: str,
    *,
    prompts: Path,
    threshold: int = 0,
    toolchains: Mapping[str, str] | None = None,
) -> Report:
    """Return everything that is wrong with a commit. The other values come from the installation.

    Raises WorkspaceError if the commit cannot be read.
    """
    with laid_out(repository, commit, prompts=prompts, threshold=threshold) as context:
        return report_on(replace(context, toolchains=toolchains or {}))


@contextmanager
def laid_out(
    repository: Repository, commit: str, *, prompts: Path, threshold: int = 0
) -> Iterator[RepositoryContext]:
    """Yield what matters of a commit in a folder that is gone afterwards. Raises WorkspaceError."""
    files = committed_tree(repository, commit=commit)
    with temporary_folder("cat-herder-commit-") as folder_of_commit:
        root = folder_of_commit.resolve()
        tracked = frozenset(file.path for file in files)
        context = RepositoryContext(root, prompts=prompts, threshold=threshold, tracked=tracked)
        layout = _Layout(repository, root)
        layout.lay([file for file in files if file.path == CONFIG_FILE], reads=lambda file: True)
        folder = (read_settings_file(context).task_folder or DEFAULT_TASK_FOLDER).strip("/") + "/"
        is_read = partial(_is_read, task_folder=folder)
        behind = _behind_links(repository, files, is_read)
        imported = _imported_instructions(repository, files)

        def reads(file: TreeFile) -> bool:
            is_behind_link = file.path.endswith(".md") and file.path.startswith(behind)
            return is_read(file) or is_behind_link or file.path in imported

        words = ""
        if (root / CONFIG_FILE).is_file():
            words = (root / CONFIG_FILE).read_text(encoding="utf-8", errors="replace")
        # Those at the top come first: there is a limit of how many are read.
        rest = sorted((file for file in files if file.path != CONFIG_FILE), key=lambda file: "/" in file.path)
        layout.lay([file for file in rest if reads(file) or _may_be_meant(file, words)], reads=reads)
        yield context


def _is_read(file: TreeFile, *, task_folder: str) -> bool:
    path = PurePosixPath(file.path)
    is_task = file.path.startswith(task_folder) and path.suffix == ".md"
    is_prompt = file.path.startswith((_PROMPTS, RULES)) and path.suffix == ".md"
    return is_task or is_prompt or file.path in _READ or path.name in _READ_ANYWHERE or path.suffix == ".mk"


def _behind_links(
    repository: Repository, files: Iterable[TreeFile], is_read: Callable[[TreeFile], bool]
) -> tuple[str, ...]:
    """Return where links lead in place of prompts and instructions, or of the folders that hold them."""
    links = [file for file in files if file.is_link and (is_read(file) or file.path in _LINKED_FOLDERS)]
    found = []
    for link in links[:100]:
        target = blob_bytes(repository, link, limit=4000).decode("utf-8", errors="replace")
        found.append(posixpath.normpath(posixpath.join(posixpath.dirname(link.path), target)))
    return tuple(found)


def _imported_instructions(repository: Repository, files: Iterable[TreeFile]) -> set[str]:
    """Return the files that CLAUDE.md and the like import, and those that these import."""
    by_path = {file.path: file for file in files if not file.is_link and file.size <= MAX_BYTES}

    def read(name: str) -> str | None:
        file = by_path.get(name)
        if file:
            return blob_bytes(repository, file).decode(errors="replace")
        return None

    return {name for name, _ in ProjectInstructions(read, by_path).more}


def _may_be_meant(file: TreeFile, words: str) -> bool:
    """Return whether the settings may mean it: then that it exists matters, whatever is in it."""
    return file.is_link or "/" not in file.path or PurePosixPath(file.path).name in words


class _Layout:
    """Files of a commit in a folder: with their contents where they are read, else empty."""

    def __init__(self, repository: Repository, root: Path) -> None:
        self._repository = repository
        self._root = root
        self._read = self._laid = 0

    def lay(self, files: Iterable[TreeFile], *, reads: Callable[[TreeFile], bool]) -> None:
        for file in files:
            path = self._root / file.path
            if self._laid >= _MOST_LAID or ".." in path.parts:
                return
            self._laid += 1
            # A name that is too long for this machine, or that clashes once it is made UTF-8, is left out.
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                if file.is_link:
                    content = blob_bytes(self._repository, file, limit=4000)
                    path.symlink_to(_target(content, file.path))
                else:
                    with path.open("xb") as out:
                        if file.size > MAX_BYTES:
                            out.truncate(MAX_BYTES + 1)
                        elif reads(file) and self._read < _MOST_READ:
                            self._read += 1
                            out.write(blob_bytes(self._repository, file))
                    if file.mode == "100755":
                        path.chmod(0o700)


def _target(content: bytes, path: str) -> str:
    """Return where a link leads, if that is for certain within the repository."""
    target = content.decode("utf-8", errors="replace")
    parts = PurePosixPath(target).parts
    up = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    depth = len(PurePosixPath(path).parts) - 1
    is_plain = bool(parts) and not target.startswith("/") and "\0" not in target
    if is_plain and up <= depth and ".." not in parts[up:]:
        return target
    return _OUTSIDE

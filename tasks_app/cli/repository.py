"""Open the repository that a command names: a folder, a URL, or the name of a project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from tasks_app.cli.terminal import Screen
from tasks_app.config.validation import Report, RepositoryContext, is_repository
from tasks_app.core.amounts import counted
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.core.files import temporary_folder
from tasks_app.core.phases import Phase
from tasks_app.core.text import strip_controls
from tasks_app.git import inspect_source
from tasks_app.git.program import NETWORK_SECONDS, Git
from tasks_app.git.source import is_url, upload_pack
from tasks_app.models import Decision, Project, PublicationState, Task
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.services.commands import fetch_command_for
from tasks_app.services.difference import difference_of
from tasks_app.services.results import (
    account_after_review,
    accounts_of,
    building_account_first,
    checks_in_words,
    checks_of,
    named_decisions,
)
from tasks_app.services.reviews import approvals_of
from tasks_app.services.sequences import task_files


@dataclass(frozen=True)
class OpenedRepository:
    """A folder with a repository's files. A `copy` is deleted when the command ends."""

    root: Path
    name: str
    copy: bool = False


@contextmanager
def open_repository(name: str) -> Iterator[OpenedRepository]:
    """Open a repository by folder, URL or project name. Raises BadInput or WorkspaceError.

    URLs and bare repositories have no work tree, so they are cloned temporarily.
    """
    source = name
    if not is_url(name) and not Path(name).exists():
        project = project_named(name)
        if project is None:
            raise BadInput("there is no such folder, and no project of that name", where=name)
        source = project.source
    if not is_url(source) and not _is_bare(Path(source)):
        yield OpenedRepository(resolve_folder(source), name)
        return
    with temporary_folder("cat-herder-validate-") as temporary:
        root = temporary.resolve() / "repository"
        inspected = inspect_source(source)
        Git().run(
            "clone", "--quiet", "--depth=1", "--no-tags", "--template=", "--no-recurse-submodules",
            *upload_pack(inspected.source), "--", inspected.source, str(root), timeout=NETWORK_SECONDS,
        )  # fmt: skip
        yield OpenedRepository(root, name, copy=True)


def resolve_folder(name: str) -> Path:
    """Return the full path of a folder. Raises BadInput."""
    path = Path(name).expanduser()
    if not path.exists():
        raise BadInput("there is no such folder", where=name)
    if not path.is_dir():
        raise BadInput("this is not a folder; name the top folder of a repository", where=name)
    return path.resolve()


def repository_context(root: Path) -> RepositoryContext:
    """Return the folder with the prompts and the default threshold of this installation."""
    return RepositoryContext(root, prompts=SHIPPED_PROMPTS, threshold=settings.ENVIRONMENT.threshold)


def project_named(name: str) -> Project | None:
    """Return the project that a command names; None if the name is that of a folder, a URL, or of nothing."""
    if is_url(name) or Path(name).exists():
        return None
    try:
        return Project.objects.filter(name=name).first()
    except DatabaseError:  # the database is not set up yet
        return None


def _is_bare(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and not is_repository(path)


# Print a task's result: what its agents said, how to fetch it, and which files were left out of it.


#: How many names of changed files are printed.
_FILES = 5


def show_result(screen: Screen, task: Task, *, was_printed: bool = False) -> None:
    """Print what agents said, which decisions were followed, and the command that fetches the result.

    `was_printed`: the last message has just been printed, so it is left out if it is the only one.
    """
    if task.phase == Phase.DONE:
        _show_accounts(screen, task, was_printed=was_printed)
        _show_files(screen, task)
        _show_checks(screen, task)
    _show_decisions(screen, task)
    if approvals := approvals_of(task):
        screen.say(f"Approved by {', '.join(one.author.shown_name for one in approvals)}", indent=2)
    if publication := task.publications.first():
        where = f" as {publication.branch}" if publication.state == PublicationState.PUSHED else ""
        if where and publication.commit != task.head_commit:
            where = f" an earlier result{where}"
        screen.say(f"{publication.get_state_display().capitalize()}{where}", indent=2)
    if fetch := fetch_command_for(task):
        screen.say(f"Fetch the result with  {fetch}", indent=2, wrap=False)
    for note in task.left_out:
        screen.say(strip_controls(note), indent=2, style="yellow")


def _show_files(screen: Screen, task: Task) -> None:
    try:
        difference = difference_of(task)
        files = difference.files() if difference else ()
    except WorkspaceError as error:
        screen.say(str(error), indent=2, style="yellow")
        return
    if files:
        added, removed = sum(one.added for one in files), sum(one.removed for one in files)
        names = ", ".join(one.path for one in files[:_FILES])
        if len(files) > _FILES:
            names += ", …"
        screen.say(f"Changed  {counted(len(files), 'file')}, +{added} −{removed}: {names}", indent=2)


def _show_checks(screen: Screen, task: Task) -> None:
    checks = checks_of([task])
    if not checks:
        return
    failed = [one.check for one in checks if not one.passed]
    said, style = checks_in_words(checks), "green"
    if failed:
        said, style = f"{said}; failed: {', '.join(failed)}", "red"
    screen.say(f"Checks   {said}", indent=2, style=style)


def _show_decisions(screen: Screen, task: Task) -> None:
    named = named_decisions([task])
    if followed := [_cited(one.said.decision) for one in named if not one.is_unfit]:
        screen.say(f"Followed {', '.join(followed)}", indent=2)
    for one in named:
        if one.is_unfit:
            said = f"{_cited(one.said.decision)} does not fit: {one.said.note}".removesuffix(": ")
            screen.say("; ".join(filter(None, [said, one.kept_in_words])), indent=2)


def _cited(decision: Decision) -> str:
    return decision.label if decision.is_active else f"{decision.label} ({decision.state_in_words} now)"


def _show_accounts(screen: Screen, task: Task, *, was_printed: bool) -> None:
    """Print what the agents of the step said that built the result, and name the steps of the others.

    Before it stands what another step said that dealt with a review since.
    """
    accounts = building_account_first(accounts_of([task]))
    if not accounts or (was_printed and sum(len(one.messages) for one in accounts) == 1):
        return
    built, *others = accounts
    if changed := account_after_review(accounts):
        others.remove(changed)
        screen.say(f"{changed.step.name}, after a review", indent=2, style="bold")
        screen.say(changed.messages[-1].text, indent=4)
    for message in filter(None, [built.current, *built.earlier]):
        run = f", {message.title}" if built.earlier else ""
        if message is not built.current:
            run += ", before that"
        screen.say(f"{built.step.name}{run}", indent=2, style="bold")
        screen.say(message.text, indent=4)
    if others:
        names = ", ".join(f"{one.step.name} {one.changes}".strip() for one in others)
        screen.say(f"Other steps reported too: {names}. `status {task.pk} --json` has it all.", indent=2)


# Print the findings of a validation: errors first, then warnings, grouped by file.


_STYLES = {"error": "red", "warning": "yellow", "hint": "blue"}


def show_report(screen: Screen, report: Report, *, repository: str) -> None:
    """Print every finding with its line, and a summary."""
    shown = (("error", report.errors), ("warning", report.warnings), ("hint", report.hints))
    for what, findings in shown:
        if findings:
            screen.say(f"{counted(len(findings), what)}:", style=f"bold {_STYLES[what]}")
            for file, in_file in groupby(findings, key=lambda one: one.file):
                screen.say(f"  {file or 'the repository'}", style="bold", wrap=False)
                for one in in_file:
                    place = f"{file}:{one.problem.line}: " if one.problem.line else ""
                    mark = " (--fix)" if one.fixable else ""
                    screen.say(f"{place}{one.problem.sentence}{mark}", indent=4)
            screen.say()
    if report.faults:
        screen.say(f"{summary(report)} in {repository}: {report.looked_at}.", wrap=False)
    else:
        screen.say(f"No problems in {repository}: {report.looked_at}.", style="green", wrap=False)
    if any(one.fixable for one in report.findings):
        screen.say("`cat-herder validate --fix` fixes what is marked with (--fix).")


def summary(report: Report) -> str:
    return f"{counted(len(report.errors), 'error')}, {counted(len(report.warnings), 'warning')}"


# Detect files that are completely written: editors write several times, and copies take time.


@dataclass(frozen=True)
class FileState:
    """Facts that change when a file is written."""

    modified: int
    size: int
    inode: int


def task_file_states(folder: Path) -> dict[str, FileState]:
    """Return the states of a folder's task files; none if the folder does not exist."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    except OSError:
        return {}
    for name in task_files(names):
        try:
            status = (folder / name).stat()
        except OSError:  # deleted meanwhile
            continue
        found[name] = FileState(status.st_mtime_ns, status.st_size, status.st_ino)
    return found


class StableFiles:
    """Reports each state of each file once, after it was unchanged for `seconds`. Empty files are taken as
    not written yet. Times come from any monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, tuple[FileState, float]] = {}
        self._reported: dict[str, FileState] = {}

    def update(self, found: Mapping[str, FileState], *, now: float) -> list[str]:
        """Return the names of files that became stable since the last call, sorted."""
        before = self._since
        self._since = {
            name: before[name] if name in before and before[name][0] == state else (state, now)
            for name, state in found.items()
        }
        self._reported = {name: state for name, state in self._reported.items() if name in found}
        stable = [name for name in self._unreported() if now - self._since[name][1] >= self._seconds]
        self._reported.update((name, found[name]) for name in stable)
        return stable

    @property
    def has_unstable(self) -> bool:
        """Whether some file may not be written completely yet."""
        return bool(self._unreported())

    def _unreported(self) -> list[str]:
        return sorted(
            name
            for name, (state, _) in self._since.items()
            if state.size and self._reported.get(name) != state
        )

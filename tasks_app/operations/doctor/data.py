"""Checks of the data directory, the secret key and the repositories."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from tasks_app.core.amounts import counted
from tasks_app.core.errors import BranchMissing, CatHerderError, WorkspaceError
from tasks_app.core.phases import ENDED
from tasks_app.engine.workers.machine import toolchains_of_machine
from tasks_app.git.repairing import is_readable
from tasks_app.models import Project, Task, paths
from tasks_app.operations.doctor import Finding, ok, problem, warning
from tasks_app.operations.fitness import portal_problem, redis_difference
from tasks_app.operations.repositories import commits_in
from tasks_app.services.data_directory import Verdict, data_dir_problems, ownership
from tasks_app.services.projects.projects import check_repository, repair_repository
from tasks_app.services.projects.settings import use_default_branch

#: Free bytes below which there is a problem, and a warning.
PROBLEM_SPACE, WARNING_SPACE = 500 * 1000**2, 5 * 1000**3
#: Seconds for adding up sizes; a workspace may have a million files.
SIZING_SECONDS = 5.0


def data_directory() -> Iterator[Finding]:
    path = paths.data_dir()
    status = path.stat()
    if status.st_uid != os.geteuid():
        yield warning("data directory", f"{path} belongs to another user", f"chown -R $(id -un) {path}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        yield problem(
            "data directory", f"{path} can be read by other users of this machine", f"chmod 700 {path}",
            fix=lambda: _restrict(path, 0o700),
        )  # fmt: skip
    else:
        yield ok("data directory", f"{path}, readable only by this user")


def _restrict(path: Path, mode: int) -> str:
    path.chmod(mode)
    return f"{path} can only be read by its owner now"


def free_space() -> Iterator[Finding]:
    free = shutil.disk_usage(paths.data_dir()).free
    shown = f"{free / 1e9:.1f} GB free for the data directory"
    advice = "cat-herder clean_up workspaces --older-than 7 removes workspaces of ended tasks."
    if free < PROBLEM_SPACE:
        yield problem("disk", shown, advice)
    elif free < WARNING_SPACE:
        yield warning("disk", shown, advice)
    else:
        yield ok("disk", shown)


def sizes() -> Iterator[Finding]:
    until = time.monotonic() + SIZING_SECONDS
    found, whole = [], True
    for name in ("repositories", "tasks", "sequences"):
        size, all_of_it = _folder_size(paths.data_dir() / name, until)
        if all_of_it:
            found.append(f"{name} {size / 1e6:,.0f} MB")
        else:
            found.append(f"{name} at least {size / 1e6:,.0f} MB")
            whole = False
    said = ", ".join(found)
    yield ok("disk use", said if whole else f"{said} (not counted to the end)")


def _folder_size(folder: Path, until: float) -> tuple[int, bool]:
    """Return the bytes on the disk, and whether all files were counted in time."""
    total = 0
    for parent, _, names in os.walk(folder):
        if time.monotonic() > until:
            return total, False
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_blocks * 512
            except OSError:  # removed meanwhile
                continue
    return total, True


#: Undecided states, which the next start resolves.
_UNDECIDED = {
    Verdict.NEW: ok("installation", "the data directory is new to this database; the first start joins both"),
    Verdict.UNPROVEN: warning(
        "installation",
        "neither has noted yet that the data directory and the database belong together",
        "The next start compares the commits in the repositories with those of the tasks, and notes it.",
    ),
}


def installation() -> Iterator[Finding]:
    if name := settings.ENVIRONMENT.worker_name:
        if text := portal_problem():
            yield problem("worker host", text, "The worker of this host takes no tasks until then.")
        else:
            yield ok("worker host", f"{name} belongs to the portal at {settings.ENVIRONMENT.address}")
            if text := redis_difference():
                yield warning("worker host", text)
        return
    try:
        if finding := _UNDECIDED.get(ownership().verdict):
            yield finding
            return
        problems = data_dir_problems()
    except DatabaseError:
        return  # reported by the check of the database
    except CatHerderError as error:
        problems = [str(error)]
    for text in problems:
        yield problem("installation", text, "cat-herder installation shows both and what to do.")
    if not problems:
        yield ok("installation", "the data directory and the database belong together")


def secret_key() -> Iterator[Finding]:
    path = paths.data_dir() / "secret_key"
    if settings.ENVIRONMENT.secret_key:
        yield ok("secret key", "from CATHERDER_SECRET_KEY; a backup does not have it, so keep it safe")
    elif stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield problem(
            "secret key", f"{path} can be read by others", f"chmod 600 {path}",
            fix=lambda: _restrict(path, 0o600),
        )  # fmt: skip
    else:
        yield ok("secret key", str(path))


def repositories(*, deep: bool = False) -> Iterator[Finding]:
    """Check references and the commits of unfinished tasks; with `deep`, read every object."""
    if settings.ENVIRONMENT.worker_token:
        return  # mirrors are made anew when they are damaged
    try:
        projects = list(Project.objects.all())
    except DatabaseError:
        return  # reported by the check of the database
    faulty = 0
    for project in projects:
        for fault in _repository_problems(project, deep=deep):
            faulty += 1
            yield problem(
                "repository", f"{project.name}: {fault}",
                f"cat-herder project fetch {project.name} repairs it; what its source lacks is in a backup.",
                fix=partial(_repair, project),
            )  # fmt: skip
            break
        else:
            if not _has_branch(project):
                faulty += 1
                yield problem(
                    "repository", f"{project.name}: its source has no branch {project.branch} any more",
                    f"cat-herder project settings {project.name} --branch NAME chooses another.",
                    fix=partial(_use_default_branch, project),
                )  # fmt: skip
    looked = f"{len(projects)} looked at"
    if deep:
        looked += ", every object read"
    if projects and not faulty:
        yield ok("repositories", looked)


def _has_branch(project: Project) -> bool:
    try:
        paths.repository(project).head(project.branch)
    except BranchMissing:
        return False
    except CatHerderError:
        pass  # damage is reported by another check
    return True


def _use_default_branch(project: Project) -> str:
    return f"tasks of {project.name} start from the branch {use_default_branch(project)} now"


def _repository_problems(project: Project, *, deep: bool) -> Iterator[str]:
    path = paths.repository(project).path
    if not path.exists():
        yield f"there is none at {path}"
    elif not is_readable(path):
        yield "it is damaged"
    elif missing := _missing_commits(project):
        yield f"missing: {counted(len(missing), 'commit')} of unfinished tasks, such as {min(missing)}"
    elif deep:
        yield from check_repository(project)


def _missing_commits(project: Project) -> set[str]:
    unfinished = Task.objects.filter(project=project).exclude(phase__in=ENDED)
    pairs = unfinished.values_list("base_commit", "head_commit")
    named = {commit for pair in pairs for commit in pair if commit}
    return named - commits_in(paths.repository(project).git, named)


def _repair(project: Project) -> str:
    done = repair_repository(project)
    if still := next(_repository_problems(project, deep=False), ""):
        raise WorkspaceError(still)
    return " ".join(done) or f"{project.name} was fetched again"


def missing_toolchains() -> Iterator[Finding]:
    """Warn about toolchains that unfinished tasks need and this machine lacks."""
    unfinished = Task.objects.exclude(phase__in=ENDED).exclude(toolchains="")
    try:
        rows = set(unfinished.values_list("toolchains", "project__name"))
    except DatabaseError:
        return  # reported by the check of the database
    known = toolchains_of_machine()
    needed = {(name, project) for names, project in rows for name in names.split(",")}
    for name, project in sorted(needed):
        if known.get(name, "not listed"):
            yield warning(
                "toolchains",
                f"unfinished tasks of {project} need {name}, which is not here",
                "Install it for this user, or give workers that have it a label and name it in runsOn.",
            )


CHECKS = (data_directory, free_space, sizes, installation, secret_key, missing_toolchains)

"""Abilities of this worker besides its labels (M6): toolchains, Git LFS, an offline sandbox.

A worker that lacks one of them leaves the task to another.
"""

from __future__ import annotations

from django.conf import settings

from tasks_app.core.environment_values import is_readable_folder
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.labels import GIT_LFS, OFFLINE, Labels, labels_and_toolchains, toolchain_labels
from tasks_app.git.lfs import is_installed
from tasks_app.models import Task, paths
from tasks_app.sandbox import Sandbox
from tasks_app.sandbox.toolchains import (
    NoToolchain,
    Toolchain,
    Toolchains,
    find_toolchain,
    known_toolchains,
    why_missing,
)


def labels_of_machine(sandbox: Sandbox) -> Labels:
    """Return the labels for everything that this worker has now."""
    return toolchains_here() | _abilities(sandbox)


def missing_here(needed: Labels, sandbox: Sandbox) -> Labels:
    """Return the labels among those needed for which this worker lacks something now."""
    return missing_toolchains(needed) | ((needed & {GIT_LFS, OFFLINE}) - _abilities(sandbox))


def has_git_lfs() -> bool:
    """Return whether this worker can fetch contents of Git LFS, and record their pointers."""
    return "lfs" in dict(settings.ENVIRONMENT.git_filters) and is_installed()


def _abilities(sandbox: Sandbox) -> Labels:
    found = {GIT_LFS: has_git_lfs(), OFFLINE: sandbox.keeps_network_out}
    return frozenset(label for label, has in found.items() if has)


# The toolchains that a task's project has asked for, as this worker has them (M5).


def toolchains_of(task: Task) -> Toolchains:
    """Return what processes of the task may read and get as variables. Raises WorkspaceError."""
    return Toolchains.of(_found(name) for name in task.toolchains.split(",") if name)


def missing_toolchains(needed: Labels) -> Labels:
    """Return the labels among those needed whose toolchain this worker does not have now."""
    _, names = labels_and_toolchains(needed)
    listed, hidden = _listed(), (paths.data_dir(),)
    return toolchain_labels(name for name in names if why_missing(name, listed, hidden=hidden))


def toolchains_here() -> Labels:
    """Return the labels of the toolchains that this worker has now."""
    return toolchain_labels(name for name, problem in toolchains_of_machine().items() if not problem)


def toolchains_of_machine() -> dict[str, str]:
    """Return every toolchain that a project may ask for, with why this machine lacks it; "" if it has it."""
    return known_toolchains(_listed(), hidden=(paths.data_dir(),))


def _listed() -> dict[str, str]:
    """Return the installation's toolchains by name, and its readable folders by themselves."""
    environment = settings.ENVIRONMENT
    return {**dict(environment.toolchains), **{folder: folder for folder in environment.readable}}


def _found(name: str) -> Toolchain:
    try:
        return find_toolchain(name, _listed(), hidden=(paths.data_dir(),))
    except NoToolchain as error:
        if is_readable_folder(name):
            raise WorkspaceError(
                f"The project asks for the folder {name} (readable in cat-herder.yaml), which this worker"
                f" does not show: {error}. List it in CATHERDER_READABLE, or let another worker do the task."
            ) from None
        raise WorkspaceError(
            f"The project needs the toolchain {name} (toolchains in cat-herder.yaml), which this worker does"
            f" not have: {error}. Install it for the worker's user, or let a worker that has it do the task."
        ) from None

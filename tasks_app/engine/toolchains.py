"""The toolchains that a task's project has asked for, as this worker has them (M5)."""

from __future__ import annotations

from django.conf import settings

from tasks_app.core.errors import WorkspaceError
from tasks_app.models import Task, paths
from tasks_app.sandbox.toolchains import NoToolchain, Toolchain, Toolchains, find_toolchain, known_toolchains


def toolchains_of(task: Task) -> Toolchains:
    """Return what processes of the task may read and get as variables. Raises WorkspaceError."""
    return Toolchains.of(_found(name) for name in task.toolchains.split(",") if name)


def toolchains_of_machine() -> dict[str, str]:
    """Return every toolchain that a project may ask for, with why this machine lacks it; "" if it has it."""
    return known_toolchains(dict(settings.ENVIRONMENT.toolchains), hidden=(paths.data_dir(),))


def _found(name: str) -> Toolchain:
    listed = dict(settings.ENVIRONMENT.toolchains)
    try:
        return find_toolchain(name, listed, hidden=(paths.data_dir(),))
    except NoToolchain as error:
        raise WorkspaceError(
            f"The project needs the toolchain {name} (toolchains in cat-herder.yaml), which this worker does"
            f" not have: {error}. Install it for the worker's user, or give workers that have it a label and"
            " name it in runsOn."
        ) from None

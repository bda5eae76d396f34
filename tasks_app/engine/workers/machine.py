"""What this worker has of what tasks need besides labels (M6): toolchains, Git LFS, an offline sandbox.

A worker that lacks one of them leaves the task to another.
"""

from __future__ import annotations

from django.conf import settings

from tasks_app.core.labels import GIT_LFS, OFFLINE, Labels
from tasks_app.engine.workers.toolchains import missing_toolchains, toolchains_here
from tasks_app.git.lfs import is_installed
from tasks_app.sandbox import Sandbox


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

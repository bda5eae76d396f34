"""Making a task's clone, with the submodules and contents of Git LFS that its project wants in it (M5)."""

from __future__ import annotations

from django.conf import settings

from tasks_app.core.errors import SubmodulesUnavailable, WorkspaceError
from tasks_app.core.storable import storable_text
from tasks_app.engine.workers.machine import has_git_lfs
from tasks_app.git.lfs_contents import LfsContents
from tasks_app.git.submodules import AllowedSources, Submodule, SubmoduleStore
from tasks_app.models import Task, paths


def make_clone(task: Task, commit: str) -> None:
    """Make the task's clone at `commit`, unless there is one.

    Raises WorkspaceError, in words for people; SubmodulesUnavailable if another host may succeed.

    From where submodules and contents come is read in the commit that the task began from, or that was merged
    since: an agent cannot have the portal fetch from elsewhere.
    """
    declared_in = task.merged_commit or task.base_commit
    try:
        paths.workspace(task).create(
            base=commit,
            submodules=_submodules(task, commit, declared_in) if task.submodules else (),
            contents=_contents(task, declared_in) if task.lfs else None,
        )
    except WorkspaceError as error:
        if (text := storable_text(str(error))) != str(error):
            raise type(error)(text) from error
        raise


def _submodules(task: Task, commit: str, declared_in: str) -> tuple[Submodule, ...]:
    environment = settings.ENVIRONMENT
    allowed = AllowedSources(
        task.project.source,
        listed=environment.submodules,
        folders_hidden=(paths.data_dir(),),
        local=not environment.worker_token,
    )
    store = SubmoduleStore(paths.submodules_of(task.project), allowed)
    try:
        return store.fetch(paths.repository(task.project), commit, declared_in=declared_in)
    except WorkspaceError as error:
        raise SubmodulesUnavailable(str(error)) from error


def _contents(task: Task, needed_in: str) -> LfsContents:
    if not has_git_lfs():
        raise WorkspaceError(
            "The project wants contents of Git LFS (lfs: true in cat-herder.yaml). For that, this worker"
            " needs git-lfs and CATHERDER_GIT_FILTERS=lfs: otherwise what it records would have the contents"
            " in the place of their pointers."
        )
    return LfsContents(paths.repository(task.project), task.project.source, needed_in)

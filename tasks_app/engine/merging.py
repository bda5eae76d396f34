"""Merges that agents resolve: the merge commit of their work, and a check for conflict markers."""

from __future__ import annotations

from dataclasses import replace

from tasks_app.core.errors import WorkspaceError
from tasks_app.engine.checks import CheckReport
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import AUTHOR, Repository, Snapshot, blobs_shown_as, has_line_with_prefix
from tasks_app.git.publishing import make_commit
from tasks_app.models import Run, Task, paths
from tasks_app.services.merging import Merge


def merged_into(task: Task, commit: str) -> str:
    """Return the commit of the project's branch that an agent merged into `commit`; "" if none did."""
    merge = Merge.of(task)
    if merge and _is_ancestor(paths.repository(task.project), merge.target, commit):
        return merge.target
    return ""


def _is_ancestor(repository: Repository, one: str, other: str) -> bool:
    """Raises WorkspaceError if a commit cannot be read, which must not count as “no”."""
    done = repository.git.finish("merge-base", "--is-ancestor", one, other)
    if done.code not in (0, 1):
        raise WorkspaceError(done.messages or f"git merge-base ended with {done.code}")
    return done.code == 0


def as_merge_commit(run: Run, made: Snapshot, *, label: str, context: WorkerContext) -> Snapshot:
    """Let work that began at a started merge be one merge commit, without the commit that has markers.

    While conflicts are left, it stays on top of that commit. Afterwards the clone's own branch is moved too,
    so that later recordings follow the merge commit. Doing so twice is harmless.
    """
    task = run.step.task
    merge, repository = Merge.of(task), paths.repository(task.project)
    if merge is None or not _is_ancestor(repository, merge.started, made.commit):
        return made
    if _unresolved(repository, made.commit, merge):
        return made
    commit = make_commit(
        repository, repository.tree(made.commit), parents=[merge.onto, merge.target],
        message=f"Merge branch '{task.project.branch}' into {task.branch}", author=AUTHOR, at=run.started_at,
    )  # fmt: skip
    workspace = paths.workspace(task)
    workspace.set_snapshot(commit, label=label, publish=True)
    note = workspace.commit(commit, sandbox=context.sandbox, home=paths.home(task))
    return replace(made, commit=commit, notes=(*made.notes, note) if note else made.notes)


def merge_report(run: Run) -> CheckReport | None:
    """Return a check of whether the conflicts of a merge are resolved; None if the task has no merge."""
    task = run.step.task
    merge = Merge.of(task)
    if merge is None or not run.head_commit or not merged_into(task, run.head_commit):
        return None
    left = _unresolved(paths.repository(task.project), run.head_commit, merge)
    if not left:
        return CheckReport(True, "merge: no conflict markers")
    order = "Resolve the conflicts in these files, and remove the markers:\n" + "\n".join(left)
    return CheckReport(
        False, "merge: no conflict markers", order, problem="The merge has conflicts that are not resolved."
    )


def _unresolved(repository: Repository, commit: str, merge: Merge) -> list[str]:
    """Return the files of the commit in which conflict markers of the merge are left.

    Raises WorkspaceError: a file that cannot be read must not count as resolved.
    """
    files = blobs_shown_as(repository, commit=commit, names=frozenset(merge.files))
    return [name for name, blob in files if has_line_with_prefix(repository, blob, merge.markers)]

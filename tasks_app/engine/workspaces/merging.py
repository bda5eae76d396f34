"""Merges that agents resolve: the merge commit of their work, and a check for conflict markers."""

from __future__ import annotations

import re
from dataclasses import replace

from django.db.models import Q

from tasks_app.core.errors import WorkspaceError
from tasks_app.engine.checks import CheckReport
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.git import AUTHOR, Repository, Snapshot
from tasks_app.git.publishing import make_commit
from tasks_app.history.events.reading import Events
from tasks_app.models import EventKind, Run, Task, paths
from tasks_app.prompting.merging import in_one_line, unresolved_merge
from tasks_app.services.publishing.pull_requests import Merge

_CHECK = "merge: all conflicts resolved"


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

    While conflicts are not resolved, it stays on top of that commit. Afterwards the clone's own branch is
    moved too, so that later recordings follow the merge commit. Doing so twice is harmless.
    """
    task = run.step.task
    merge, repository = Merge.of(task), paths.repository(task.project)
    if merge is None or not _is_ancestor(repository, merge.started, made.commit):
        return made
    if merge.files_with_markers(repository, made.commit) or _left_alone(run, made.commit, merge):
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
    repository = paths.repository(task.project)
    marked = merge.files_with_markers(repository, run.head_commit)
    is_started = _is_ancestor(repository, merge.started, run.head_commit)
    unmarked = _left_alone(run, run.head_commit, merge) if is_started else []
    if not (marked or unmarked):
        return CheckReport(True, _CHECK)
    found = "\n".join(map(in_one_line, [*marked, *unmarked]))
    problem = "The merge has conflicts that are not resolved."
    return CheckReport(False, _CHECK, found, problem=problem, order=unresolved_merge(marked, unmarked))


def _left_alone(run: Run, commit: str, merge: Merge) -> list[str]:
    """Return files in conflict that have no markers, were not touched, and that the agent did not name.

    It names what it decided to keep in the last message of any run since the merge began.
    """
    task = run.step.task
    untouched = merge.files_left_alone(paths.repository(task.project), commit) if merge.unmarked else []
    if not untouched:
        return []
    ends = Events(Q(run__step__task=task, run__pk__gt=merge.last_run)).of_kinds([EventKind.RESULT])
    said = "\n".join(str(end.payload.get("text", "")) for end in ends.all())
    return [name for name in untouched if not _is_named(name, said)]


def _is_named(path: str, text: str) -> bool:
    """Return whether the text has the path by itself, not as a part of another path or word.

    Blanks and line ends are alike, because prompts show a path in one line.
    """
    shown, text = in_one_line(path), in_one_line(text)
    return re.search(rf"(?<![\w./-]){re.escape(shown)}(?![\w/-]|\.\w)", text) is not None

"""The files that a question is about: those it names, and those its task has changed. Runs git."""

from __future__ import annotations

from collections.abc import Collection

from tasks_app.core.named_paths import paths_named_in
from tasks_app.git import Repository, changed_files, committed_tree, root_names
from tasks_app.models import Question, paths
from tasks_app.services.decisions.citing import texts_of
from tasks_app.services.difference import base_of


def named_and_changed_files(question: Question) -> tuple[list[str], list[str]]:
    """Return what the question names and what its task has changed so far. Raises WorkspaceError."""
    task, repository = question.task, paths.repository(question.task.project)
    base = base_of(task)
    if not base:
        return [], []
    evidence = (str(one.get(name, "")) for one in question.evidence for name in ("title", "text"))
    words = paths_named_in([*texts_of(question), *evidence])
    named = _in_tree(words, repository, task.head_commit or base)
    changed = changed_files(repository, base=base, head=task.head_commit or base)
    return named, [name for one in changed for name in (one.path, one.old_path) if name]


def _in_tree(named: Collection[str], repository: Repository, commit: str) -> list[str]:
    """Return the names that may mean files of a commit: “and/or” and “HTTP/2” are words as well.

    Of a name with folders the first must exist, so that a new file counts. A name without folders stands for
    each file of that name in any folder.
    """
    roots = root_names(repository, commit=commit)
    with_folder = [name for name in named if name.partition("/")[0] in roots and "/" in name]
    alone = {name for name in named if "/" not in name}
    if not alone:
        return with_folder
    files = (file.path for file in committed_tree(repository, commit=commit))
    return [*with_folder, *(file for file in files if file.rpartition("/")[2] in alone)]

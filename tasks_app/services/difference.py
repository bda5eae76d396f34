"""What a task, one step of it or a sequence changed: between which commits, to look at or to take away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks_app.git import Repository, diff, patch
from tasks_app.models import Sequence, Step, Task, paths


@dataclass(frozen=True)
class Difference:
    """Between the commits `base` and `head` of the portal's repository. What is made of it raises
    WorkspaceError if one of them is not there."""

    repository: Repository
    base: str
    head: str

    def diff(self, *paths: str) -> str:
        """A text to look at, of these files or of all; a cut is said in its last line."""
        return diff(self.repository, base=self.base, head=self.head, paths=paths)

    def patch(self) -> Iterator[bytes]:
        """All of it, as `git apply` takes it."""
        return patch(self.repository, base=self.base, head=self.head)


def difference_of(what: Task | Step | Sequence) -> Difference | None:
    """None until there is something to compare."""
    task = what.task if isinstance(what, Step) else what
    base = base_of(what) if isinstance(what, Task) else what.base_commit
    if not (base and what.head_commit):
        return None
    return Difference(paths.repository(task.project), base, what.head_commit)


def base_of(task: Task) -> str:
    """The commit where the task began: one of a sequence begins where the one before it ended."""
    if not task.sequence_id:
        return task.base_commit
    first = task.steps.first()
    if first and first.base_commit and first.first_run == 1:
        return first.base_commit
    before = Task.objects.filter(sequence=task.sequence_id, pk__lt=task.pk).order_by("-pk").first()
    return (before.head_commit if before else "") or task.base_commit

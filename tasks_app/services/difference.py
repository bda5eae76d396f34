"""The changes of a task, a step, a run or a sequence, as a diff or a patch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks_app.git import ChangedFile, Repository, changed_files, diff, patch
from tasks_app.models import Project, Run, Sequence, Step, Task, paths


@dataclass(frozen=True)
class Difference:
    """The change between two commits. The methods raise WorkspaceError if a commit is lost."""

    repository: Repository
    base: str
    head: str

    def diff(self, *paths: str) -> str:
        """Return the diff of the given files or of all. If it is cut, its last line says so."""
        return diff(self.repository, base=self.base, head=self.head, paths=paths)

    def files(self, *paths: str) -> tuple[ChangedFile, ...]:
        """Return the changed files, of the given ones or of all."""
        return changed_files(self.repository, base=self.base, head=self.head, paths=paths)

    def patch(self) -> Iterator[bytes]:
        """Return the complete patch for `git apply`."""
        return patch(self.repository, base=self.base, head=self.head)


def difference_of(changed: Task | Step | Run | Sequence) -> Difference | None:
    """Return the difference; None until there is something to compare."""
    base = _base_of(changed)
    if not (base and changed.head_commit):
        return None
    return Difference(paths.repository(_project_of(changed)), base, changed.head_commit)


def _base_of(changed: Task | Step | Run | Sequence) -> str:
    if isinstance(changed, Task):
        return base_of(changed)
    if isinstance(changed, Run):
        return _base_of_run(changed)
    return base_of_sequence(changed) if isinstance(changed, Sequence) else changed.base_commit


def _base_of_run(run: Run) -> str:
    """Return the commit that the previous run of the step left; for the first one, where the step began."""
    earlier = run.step.runs.filter(number__lt=run.number, number__gte=run.step.first_run)
    before = earlier.exclude(head_commit="").order_by("-number").first()
    return before.head_commit if before else run.step.base_commit


def _project_of(changed: Task | Step | Run | Sequence) -> Project:
    if isinstance(changed, Run):
        return changed.step.task.project
    return changed.task.project if isinstance(changed, Step) else changed.project


def base_of(task: Task) -> str:
    """Return the commit where the task began; in a sequence, where the previous task ended.

    If the agent has merged the project's branch since, it is the commit that was merged.
    """
    if task.merged_commit or not task.sequence_id:
        return task.merged_commit or task.base_commit
    first = task.steps.first()
    if first and first.base_commit and first.first_run == 1:
        return first.base_commit
    before = Task.objects.filter(sequence=task.sequence_id, pk__lt=task.pk).order_by("-pk").first()
    return (before.head_commit if before else "") or task.base_commit


def base_of_sequence(sequence: Sequence, *, until: Task | None = None) -> str:
    """Return the commit where the sequence began, or the one that an agent has merged since.

    `until`: only merges of this task and of those before it count.
    """
    return merged_into_sequence(sequence, until=until) or sequence.base_commit


def merged_into_sequence(sequence: Sequence, *, until: Task | None = None) -> str:
    """Return the commit of the project's branch that an agent merged last; "" if none did."""
    merged = sequence.tasks.exclude(merged_commit="").order_by("-pk")
    if until:
        merged = merged.filter(pk__lte=until.pk)
    return merged.values_list("merged_commit", flat=True).first() or ""

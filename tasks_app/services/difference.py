"""The changes of a task, a step, a run or a sequence, as a diff or a patch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from django.db.models import F

from tasks_app.core.types import PLAN_FILE
from tasks_app.git import ChangedFile, Repository, changed_files, committed_blob, diff, patch
from tasks_app.models import Run, Sequence, Step, Task, paths


@dataclass(frozen=True)
class Difference:
    """The change between two commits. The methods raise WorkspaceError if a commit is lost.

    `without`: a file that is left out.
    """

    repository: Repository
    base: str
    head: str
    without: str = ""

    def diff(self, *paths: str) -> str:
        """Return the diff of the given files or of all. If it is cut, its last line says so."""
        return diff(self.repository, base=self.base, head=self.head, paths=paths, without=self.without)

    def files(self, *paths: str) -> tuple[ChangedFile, ...]:
        """Return the changed files, of the given ones or of all."""
        return changed_files(
            self.repository, base=self.base, head=self.head, paths=paths, without=self.without
        )

    def patch(self) -> Iterator[bytes]:
        """Return the complete patch for `git apply`."""
        return patch(self.repository, base=self.base, head=self.head, without=self.without)


def difference_of(changed: Task | Step | Run | Sequence) -> Difference | None:
    """Return the difference; None until there is something to compare. Raises WorkspaceError.

    If other steps ran between a step's runs, it is the difference of the step's last group of runs.
    """
    base = _base_of(changed)
    if not (base and changed.head_commit):
        return None
    return _difference(changed, base, changed.head_commit)


def differences_of_step(step: Step, *, after: Run | None = None) -> list[Difference]:
    """Return what the step changed, one difference for each group of its runs. Raises WorkspaceError.

    Another step ran between two groups; its changes are in neither. With `after`, a run of another step, only
    what the step has changed since.
    """
    groups = [group for group in _groups_of_runs(step) if after is None or group[0].pk > after.pk]
    return [_difference(step, _base_of_run(group[0]), group[-1].head_commit) for group in groups]


def has_separate_runs(step: Step) -> bool:
    """Return whether another step ran between its runs, so that no one difference is the step's."""
    return len(_groups_of_runs(step)) > 1


def _groups_of_runs(step: Step) -> list[list[Run]]:
    """Return the step's recorded runs whose work was kept, in groups without other steps' runs between."""
    recorded = Run.objects.filter(step__task=step.task_id, number__gte=F("step__kept_from"))
    rows = (
        recorded.exclude(head_commit="").defer("prompt").select_related("step__task__project").order_by("pk")
    )
    return [list(group) for of, group in groupby(rows, key=lambda run: run.step_id) if of == step.pk]


def _difference(changed: Task | Step | Run | Sequence, base: str, head: str) -> Difference:
    if isinstance(changed, Run):
        changed = changed.step
    if not isinstance(changed, Step):
        return Difference(paths.repository(changed.project), base, head)
    repository = paths.repository(changed.task.project)
    began, before, after = (
        committed_blob(repository, commit=commit, path=PLAN_FILE, links=True)
        for commit in (base_of(changed.task), base, head)
    )
    if before != after and after == began:  # the portal removed the plan after the run that made `head`
        return Difference(repository, base, head, without=PLAN_FILE)
    return Difference(repository, base, head)


def _base_of(changed: Task | Step | Run | Sequence) -> str:
    if isinstance(changed, Task):
        return base_of(changed)
    if isinstance(changed, Run):
        return _base_of_run(changed)
    if isinstance(changed, Step):
        groups = _groups_of_runs(changed)
        return _base_of_run(groups[-1][0]) if groups else changed.base_commit
    return base_of_sequence(changed)


def _base_of_run(run: Run) -> str:
    """Return what the task's previous run and its checks left; for a step's first run, where it began."""
    earlier = Run.objects.filter(step__task=run.step.task_id, pk__lt=run.pk).exclude(head_commit="")
    of_step = earlier.filter(step=run.step_id, number__gte=run.step.first_run)
    if run.number >= run.step.first_run and run.step.base_commit and not of_step.exists():
        return run.step.base_commit
    if run.number >= run.step.kept_from:
        earlier = earlier.filter(number__gte=F("step__kept_from"))
    before = earlier.order_by("-pk").first()
    if before is None:
        return run.step.base_commit or base_of(run.step.task)
    if before.step_id == run.step_id:
        return before.head_commit
    return before.checked_commit or before.head_commit


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
    if before and before.head_commit:
        return before.head_commit
    return task.base_commit


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

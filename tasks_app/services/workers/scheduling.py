"""The order in which waiting tasks have their turns, and what keeps a task from having one (M4).

No process schedules. A worker asks for the next task whenever it has a free slot, and claims it with one
conditional UPDATE. What is read here is a moment's view; only `limits_allow` is exact, within the claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.db.models import (
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from tasks_app.core.fair_shares import TURN_SECONDS, Account, WaitingTask, in_turn
from tasks_app.core.labels import Labels, labels_needed
from tasks_app.core.phases import Phase
from tasks_app.core.types import NETWORKS, Network, least_network
from tasks_app.models import Project, Run, Step, Task, User, WorkerBeat
from tasks_app.services.workers.hosts import most_network, tasks_per_person

#: How far back the use of workers counts for fair shares.
SHARES_OVER = timedelta(hours=1)


@dataclass(frozen=True)
class DueTask(WaitingTask):
    """A due task with the labels that it needs. Limits already count a task that lost its worker.

    `awaited_hosts` are those that may take it when they take tasks again, if no other may now.
    """

    labels: Labels = frozenset()
    awaited_hosts: tuple[str, ...] = ()
    project_limit: int | None = None


@dataclass
class TaskCounts:
    """The number of tasks that are worked on, by project and by person, and whether one more may be."""

    per_person: int | None
    of_project: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    of_person: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))

    def project_is_full(self, task: DueTask) -> bool:
        return task.project_limit is not None and self.of_project[task.project] >= task.project_limit

    def person_is_full(self, task: DueTask) -> bool:
        limited = self.per_person is not None and task.person is not None
        return limited and self.of_person[task.person] >= (self.per_person or 0)

    def copy(self) -> TaskCounts:
        return deepcopy(self)

    def take(self, task: DueTask) -> bool:
        """Count the task. Return False if a limit leaves no place for it."""
        if task.lost_its_worker:
            return True
        if self.project_is_full(task) or self.person_is_full(task):
            return False
        self.of_project[task.project] += 1
        self.of_person[task.person] += 1
        return True


def due_tasks() -> list[DueTask]:
    """Return the due tasks, in no particular order."""
    rows = Task.objects.due().annotate(**_next_needs()).order_by()
    hosts = KnownHosts()
    return [
        _due_task(row, hosts)
        for row in rows.values(
            "pk", "created_by_id", "project_id", "queued_at", "created_at", "priority", "started_at", "phase",
            "project__overrides__max_running_tasks", "left_by", *_NEEDS_OF_TASK, *_next_needs(),
        )
    ]  # fmt: skip


def _due_task(row: Mapping[str, Any], hosts: KnownHosts) -> DueTask:
    labels = _labels_in(row)
    awaited: tuple[str, ...] = ()
    if row["left_by"]:
        awaited = hosts.awaited(labels, row["left_by"])
    return DueTask(
        task_id=row["pk"],
        person=row["created_by_id"],
        project=row["project_id"],
        since=row["queued_at"] or row["created_at"],
        priority=row["priority"],
        started=row["started_at"] is not None,
        labels=labels,
        awaited_hosts=awaited,
        project_limit=row["project__overrides__max_running_tasks"],
        lost_its_worker=row["phase"] == Phase.RUNNING,
    )


def _next_step() -> QuerySet[Step]:
    return Step.objects.filter(task=OuterRef("pk")).exclude(phase=Phase.DONE).order_by("position")


def _next_needs() -> dict[str, Any]:
    """Return expressions for what a worker must have for a task's next step, as `_labels_in` reads them."""
    return {
        "runs_on": Coalesce(Subquery(_next_step().values("runs_on")[:1]), Value("")),
        "step_network": Subquery(_next_step().values(network=KT("config__network"))[:1]),
        "setup_network": KT("setup__network"),
    }


#: Columns of a task that `_labels_in` reads, too.
_NEEDS_OF_TASK = ("toolchains", "lfs")


def _labels_in(needs: Mapping[str, Any]) -> Labels:
    networks = (_network(needs["step_network"]), _network(needs["setup_network"]))
    return labels_needed(
        needs["runs_on"] or "",
        needs["toolchains"],
        lfs=needs["lfs"],
        offline=least_network(*networks, most_network()) != "full",
    )


def _network(stored: str | None) -> Network:
    """Return the network in a JSON column. SQLite gives `null` as text where the key has no value."""
    return next((network for network in NETWORKS if network == stored), "full")


def labels_of_next_step(task_id: int) -> Labels:
    """Return all labels that a worker must have to go on with the task."""
    rows = Task.objects.filter(pk=task_id).annotate(**_next_needs())
    needs = rows.values(*_NEEDS_OF_TASK, *_next_needs()).first()
    if needs is None:
        return frozenset()
    return _labels_in(needs)


def labels_of_step(step: Step) -> Labels:
    """Return the labels that a worker must have for this step."""
    task = step.task
    return _labels_in(
        {
            "runs_on": step.runs_on,
            "step_network": step.config.get("network"),
            "setup_network": (task.setup or {}).get("network"),
            "toolchains": task.toolchains,
            "lfs": task.lfs,
        }
    )


def tasks_worked_on() -> TaskCounts:
    """Return how many tasks are worked on, of each project and person."""
    found = TaskCounts(per_person=tasks_per_person())
    rows = Task.objects.worked_on().order_by().values_list("project_id", "created_by_id")
    for project, person, number in rows.annotate(number=Count("pk")):
        found.of_project[project] += number
        found.of_person[person] += number
    return found


def used_seconds() -> dict[Account, float]:
    """Return how much of the workers' time each person has used lately in each project."""
    used: dict[Account, float] = defaultdict(float)
    took = ExpressionWrapper(Coalesce("ended_at", Now()) - F("started_at"), output_field=DurationField())
    runs = Run.objects.filter(started_at__gt=timezone.now() - SHARES_OVER).order_by()
    accounts = runs.values_list("step__task__created_by_id", "step__task__project_id")
    for person, project, total in accounts.annotate(total=Sum(took)):
        used[person, project] += max(total.total_seconds(), 0.0)
    working = Task.objects.worked_on().order_by().values_list("created_by_id", "project_id")
    for person, project, number in working.annotate(number=Count("pk")):
        used[person, project] += number * TURN_SECONDS
    return used


def used_by(tasks: Collection[DueTask]) -> dict[Account, float]:
    """Return the use of workers by the people of these tasks; empty if it cannot change their order."""
    accounts = {(task.person, task.project) for task in tasks}
    if len(accounts) < 2:
        return {}
    return used_seconds()


def within_limits(
    tasks: Collection[DueTask], used: Mapping[Account, float], counts: TaskCounts, workers: Collection[Labels]
) -> Iterator[DueTask]:
    """Yield the tasks that may be worked on now, in the order of their turns; each is added to `counts`.

    `workers` are the labels of those that take tasks. A task that none of them may take gets no place, which
    others could use. One whose workers are all busy does get it: otherwise others would take the place each
    time that it is free, and the task would starve. It waits only until one of its workers is free.
    """

    def may_begin(task: DueTask) -> bool:
        return not task.awaited_hosts and can_be_taken(task.labels, workers) and counts.take(task)

    return in_turn(tasks, used, may_begin)


def next_turns(*, without: Collection[int] = (), of: Labels | None = None) -> list[DueTask]:
    """Return the due tasks that may be worked on now, in the order of their turns, `without` some tasks.

    Projects and people with a limit get as many as the limit leaves. `of` are the labels of the worker
    that asks, and begins to take tasks before its first heartbeat.
    """
    due = [task for task in due_tasks() if task.task_id not in without]
    if not due:
        return []
    workers = []
    if of is not None:
        workers.append(of)
    if any(task.labels for task in due):  # busy workers count, too
        workers += [frozenset(one.labels) for one in WorkerBeat.objects.alive().filter(problem="")]
    return list(within_limits(due, used_by(due), tasks_worked_on(), workers))


def turns_of_worker(
    labels: Labels | None, turns: Sequence[DueTask], used: Mapping[Account, float] | None = None
) -> list[DueTask]:
    """Return the turns that a worker with these labels may take, in their order for this worker.

    Tasks that only others may take cost their people no turn here. Without labels it is a terminal, which may
    take all. What people have `used` is read if it is needed and not given.
    """
    own = [task for task in turns if labels is None or task.labels <= labels]
    if len(own) == len(turns):
        return own
    if used is None:
        used = used_by(own)
    return list(in_turn(own, used))


def can_be_taken(labels: Labels, workers: Collection[Labels]) -> bool:
    """Return whether one of the workers has all of these labels."""
    return not labels or any(labels <= has for has in workers)


class KnownHosts:
    """The hosts of workers at one moment. They are read when they are first needed."""

    @cached_property
    def _known(self) -> list[WorkerBeat]:
        return list(WorkerBeat.objects.known())

    @cached_property
    def _taking(self) -> list[WorkerBeat]:
        return list(WorkerBeat.objects.alive().filter(problem=""))

    def others(self, labels: Labels, left_by: Collection[str]) -> tuple[str, ...]:
        """Return the other hosts with a worker with all of these labels that takes tasks or may soon."""
        return _hosts_with(labels, self._known, left_by)

    def awaited(self, labels: Labels, left_by: Collection[str]) -> tuple[str, ...]:
        """Return the other hosts with such a worker, if none of them takes tasks now."""
        if _hosts_with(labels, self._taking, left_by):
            return ()
        return self.others(labels, left_by)


def _hosts_with(labels: Labels, workers: Iterable[WorkerBeat], without: Collection[str]) -> tuple[str, ...]:
    found = {worker.host for worker in workers if labels <= frozenset(worker.labels)}
    return tuple(sorted(found.difference(without)))


def worker_with_labels_exists(labels: Labels, *, without: Collection[str] = ()) -> bool:
    """Return whether a worker with all of these labels, on none of these hosts, has a free slot."""
    rows = WorkerBeat.objects.alive().filter(problem="", busy__lt=F("slots")).exclude(host__in=without)
    return any(labels <= frozenset(worker.labels) for worker in rows)


def limits_allow(task_id: int) -> bool:
    """Return whether the limits of project and person leave a place for the task.

    Must be called in the transaction that claims the task: the rows of project and person are locked, so that
    of two workers that want the last place one waits for the other and then sees that it is taken.
    """
    fields = ("phase", "project_id", "created_by_id", "project__overrides__max_running_tasks")
    found = Task.objects.filter(pk=task_id).values_list(*fields).first()
    if found is None or found[0] == Phase.RUNNING:
        return True
    _, project, person, limit = found
    if limit is not None and not _is_below(Project.objects.filter(pk=project), Q(project=project), limit):
        return False
    per_person = tasks_per_person()
    if per_person is None or person is None:
        return True
    return _is_below(User.objects.filter(pk=person), Q(created_by=person), per_person)


def _is_below(row: Any, own: Q, limit: int) -> bool:
    """Lock the row until the end of the transaction, then count."""
    row.select_for_update(no_key=True).order_by().values_list("pk").first()
    return Task.objects.worked_on().filter(own).count() < limit

"""Options of the commands that start workers.

`--labels` says what a worker has. `--drain` lets running workers finish what they hold, and take nothing new
(M3).
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser, OutputWrapper
from django.db.models import Q

from tasks_app.core.amounts import counted
from tasks_app.core.labels import Labels, labels_from_text
from tasks_app.engine.workers.heartbeat import host_name
from tasks_app.management.preconditions import database_errors_as_sentences
from tasks_app.models import WorkerBeat
from tasks_app.models.worker import BEAT_SECONDS
from tasks_app.services.workers.hosts import owner_prefix

#: Seconds between two looks at the workers.
LOOK_SECONDS = BEAT_SECONDS / 3


def add_drain_options(parser: CommandParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--drain",
        nargs="?",
        const="",
        metavar="HOST[:PID]",
        help="Start no worker: tell the running ones of this host (or HOST, or only HOST:PID, or :PID of this"
        " host) to take no more tasks, and wait until they hold none. They run on, idle, until they are"
        " stopped.",
    )
    either.add_argument(
        "--take-again",
        nargs="?",
        const="",
        metavar="HOST[:PID]",
        help="Start no worker: let drained ones take tasks again.",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="With --drain: do not wait until the workers hold no task."
    )


def drain_or_take_again(
    out: OutputWrapper, *, drain: str | None, take_again: str | None, no_wait: bool, **_: Any
) -> bool:
    """Do what the options say; return False if they say nothing. Raises CommandError."""
    if drain is None and take_again is None:
        if no_wait:
            raise CommandError("--no-wait needs --drain.", returncode=2)
        return False
    with database_errors_as_sentences():
        if take_again is not None:
            for worker in _store_order(take_again, draining=False):
                out.write(f"{worker} takes tasks again.")
        elif drain is not None:
            workers = _store_order(drain, draining=True)
            if no_wait:
                out.write("\n".join(f"{worker} takes no more tasks." for worker in workers))
            else:
                _wait(out, workers)
    return True


def _store_order(name: str, *, draining: bool) -> list[WorkerBeat]:
    """Store the order for the workers of this name and return them. Raises CommandError without any."""
    host, pid = name, ""
    if name.rpartition(":")[2].isdecimal():
        host, _, pid = name.rpartition(":")
    named = Q(host=host_name())
    if host:  # people know a worker host by the name of its token
        named = Q(host=host) | Q(host__startswith=owner_prefix(host))
    found = WorkerBeat.objects.alive().filter(named)
    if pid:
        found = found.filter(pid=int(pid))
    workers = list(found)
    if not workers:
        others = ", ".join(str(one) for one in WorkerBeat.objects.alive()) or "none"
        wanted = name or "of this host"
        raise CommandError(f"No worker {wanted} is running (running: {others}).", returncode=2)
    WorkerBeat.objects.filter(pk__in=[one.pk for one in workers]).update(draining=draining)
    return workers


def _wait(out: OutputWrapper, workers: list[WorkerBeat]) -> None:
    """Say how many tasks are left whenever that changes, until all are empty or gone."""
    said: dict[int, str] = {}
    while True:
        left = {one.pk: one for one in WorkerBeat.objects.alive().filter(pk__in=[one.pk for one in workers])}
        for worker in workers:
            words = _state_in_words(left.get(worker.pk))
            if said.get(worker.pk) != words:
                out.write(f"{worker}: {words}")
                said[worker.pk] = words
        if not any(one.busy or not one.problem for one in left.values()):
            return
        time.sleep(LOOK_SECONDS)


def _state_in_words(worker: WorkerBeat | None) -> str:
    if worker is None:
        return "has ended."
    if not worker.problem:
        return "is being told."
    if worker.busy:
        return f"works on {counted(worker.busy, 'more task')}."
    return "is empty."


def add_labels_option(parser: CommandParser) -> None:
    parser.add_argument(
        "--labels",
        metavar="LABELS",
        help="what the worker has, as steps ask for it in runsOn, with commas: gpu,linux "
        "(instead of CATHERDER_WORKER_LABELS)",
    )


def labels_option(given: str | None) -> Labels:
    """Return the labels of the option, or else of the variable. Raises CommandError."""
    if given is None:
        return frozenset(settings.ENVIRONMENT.worker_labels)
    try:
        return frozenset(labels_from_text(given))
    except ValueError as error:
        raise CommandError(f"--labels: {error}", returncode=2) from None

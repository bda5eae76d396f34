"""Limits of the installation for its workers, which a worker host learns from its portal (M6).

A worker host has variables of its own, which may differ: then the portal's hold, or its own if they are
stricter. An older portal tells nothing, and the host's own variables hold.

A worker reaches the repository of a task only while it holds the lease, and only the references of that task.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from tasks_app.config.pipeline import step_from_json
from tasks_app.core.environment_values import WORKER_NAME, WORKER_TOKEN_PREFIX
from tasks_app.core.errors import BadInput, LeaseLost, WorkspaceError
from tasks_app.core.phases import ENDED
from tasks_app.core.types import NETWORKS, Network, least_network
from tasks_app.git import Repository
from tasks_app.git.mirror import INCOMING, incoming_folder
from tasks_app.git.names import valid_branch, valid_commit
from tasks_app.git.recording import set_refs
from tasks_app.history.audit import record
from tasks_app.models import Action, Outcome, Project, Run, Step, Task, WorkerToken, paths
from tasks_app.permissions import Principal, require_site_admin
from tasks_app.sandbox.peer_identity import own_addresses
from tasks_app.services.accounts import digest

_network: Network = NETWORKS[-1]
_tasks_per_person: int | None = None
#: The address from which the portal sees this worker host; "" on the portal's host.
_seen_address = ""


def follow_portal(told: Mapping[str, Any]) -> None:
    """Apply the limits that the portal has sent."""
    global _network, _tasks_per_person, _seen_address
    network = told.get("network", NETWORKS[-1])
    # A newer portal may know networks that this version does not: then the least.
    _network = network if network in NETWORKS else NETWORKS[0]
    _tasks_per_person = told.get("tasks_per_person")
    _seen_address = told.get("seen_address") or ""


def most_network() -> Network:
    """Return the most that a step may reach."""
    own: Network = settings.ENVIRONMENT.network
    return least_network(own, _network)


def agent_addresses() -> set[str]:
    """Return the IP addresses from which the portal may see agents of this machine."""
    if most_network() != "full":
        return set()
    own = own_addresses()
    if _seen_address and _seen_address not in own:  # behind a translator, where private ones mean others
        return {_seen_address, *(address for address in own if ip_address(address).is_global)}
    return own


def network_of(step: Step) -> Network:
    """Return the network from the step's settings, but never more than this installation allows."""
    return least_network(step_from_json(step.config).network or "full", most_network())


def tasks_per_person() -> int | None:
    """Return how many tasks of one person may run at the same time; None: any number."""
    limits = (settings.ENVIRONMENT.tasks_per_person, _tasks_per_person)
    return min((limit for limit in limits if limit), default=None)


logger = logging.getLogger(__name__)

_LABEL = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
#: Maximum number of references that one request may set.
_MOST_REFS = 4


def make_worker_token(name: str, *, by: Principal) -> str:
    """Create the token of a worker host and return it; only a digest of it is stored. Raises BadInput."""
    require_site_admin(by, "create tokens of worker hosts")
    if not re.fullmatch(WORKER_NAME, name):
        raise BadInput("use up to 30 small letters, digits and dashes, as in build-2", where="name")
    token = f"{WORKER_TOKEN_PREFIX}{name}.{secrets.token_urlsafe(32)}"
    try:
        with transaction.atomic():
            WorkerToken.objects.create(name=name, digest=digest(token))
            record(Action.WORKER_TOKEN_MADE, by=by.user, subject=name)
    except IntegrityError:
        raise BadInput(
            f"the worker host {name} has a token already; --revoke it first if it is lost", where="name"
        ) from None
    return token


def revoke_worker_token(name: str, *, by: Principal) -> None:
    """Revoke the token; it stops working with the next request. Raises BadInput if there is none."""
    require_site_admin(by, "revoke tokens of worker hosts")
    with transaction.atomic():
        if not WorkerToken.objects.filter(name=name).delete()[0]:
            raise BadInput(f"there is no worker host {name}", where="name")
        record(Action.WORKER_TOKEN_REVOKED, by=by.user, subject=name)


def worker_token_of(token: str) -> WorkerToken | None:
    """Return the row of a token that was not revoked."""
    if not token.startswith(WORKER_TOKEN_PREFIX) or len(token) > 200:
        return None
    return WorkerToken.objects.filter(digest=digest(token)).first()


def owner_prefix(name: str) -> str:
    """Return the prefix of the lease owners of this host's workers. Host names have no @."""
    return f"{name}@"


@dataclass(frozen=True)
class HeldTask:
    """The repository and the references in it that the holder of a lease may use."""

    worker: WorkerToken
    task_id: int
    epoch: int
    repository: Repository
    branch: str
    base_commit: str
    #: The commit whose contents of Git LFS a new workspace needs.
    contents_of: str

    @property
    def key(self) -> tuple[int, int]:
        return self.task_id, self.epoch

    @property
    def readable_refs(self) -> tuple[str, ...]:
        """The references, or folders of them, that the holder may fetch.

        What waits for its references was pushed for this task, by this holder or one before.
        """
        branch = valid_branch(self.branch)
        own = ("refs/cat-herder", "refs/cat-herder-base", "refs/cat-herder-ignored", "refs/heads")
        return ("refs/source", *(f"{kind}/{branch}" for kind in own), incoming_folder(self.task_id))


def held_task(worker: WorkerToken, task_id: int, epoch: int) -> HeldTask:
    """Return the task if a worker of this host holds it now, by this epoch. Raises LeaseLost."""
    task = _held(worker, task_id, epoch).select_related("project").first()
    if task is None:
        raise _not_held(worker, task_id, epoch)
    return HeldTask(
        worker,
        task_id,
        epoch,
        paths.repository(task.project),
        task.branch,
        task.base_commit,
        contents_of=task.merged_commit or task.base_commit,
    )


def _held(worker: WorkerToken, task_id: int, epoch: int) -> QuerySet[Task]:
    return Task.objects.held(task_id, epoch=epoch).filter(
        lease_owner__startswith=owner_prefix(worker.name), lease_expires__gt=Now()
    )


def _not_held(worker: WorkerToken, task_id: int, epoch: int) -> LeaseLost:
    return LeaseLost(f"The worker host {worker.name} does not hold task {task_id} (epoch {epoch}).")


@contextmanager
def _fenced(held: HeldTask) -> Iterator[None]:
    """Lock the task's row and check that the lease still holds: nobody else claims the task meanwhile."""
    with transaction.atomic():
        rows = _held(held.worker, held.task_id, held.epoch).select_for_update()
        if rows.values_list("pk").first() is None:
            raise _not_held(held.worker, held.task_id, held.epoch)
        yield


def require_still_held(held: HeldTask) -> None:
    """Raise LeaseLost unless the lease holds now: an exchange may take hours."""
    if not _held(held.worker, held.task_id, held.epoch).exists():
        raise _not_held(held.worker, held.task_id, held.epoch)


def ensure_base_ref(held: HeldTask) -> None:
    """Let a reference name the commit where the task began: the source may not lead there any more."""
    ref = f"refs/cat-herder-base/{valid_branch(held.branch)}"
    if held.base_commit and not held.repository.refs(ref):
        set_refs(held.repository, valid_commit(held.base_commit), ref)


def set_task_refs(held: HeldTask, target: str, refs: Sequence[str]) -> bool:
    """Let references of the task name `target`. Return False if the holder has not pushed it yet.

    The lease is checked once more when everything else is known, and held fast until they are set. Raises
    LeaseLost, and BadInput for references of others.
    """
    target = _valid_target(target)
    for ref in refs:
        _require_own(held, ref)
    if not 0 < len(refs) <= _MOST_REFS:
        raise BadInput(f"name 1 to {_MOST_REFS} references", where="refs")
    if not _is_readable(held, target):
        return False
    with _fenced(held):
        set_refs(held.repository, target, *refs)
    held.repository.remove_refs(f"{incoming_folder(held.task_id)}/")
    return True


def remove_pushes_of_ended_tasks() -> None:
    """Remove from all repositories what was pushed for tasks that have ended, and that no reference names.

    Its worker lost the lease, or a process was killed, before the task's references were set.
    """
    for project in Project.objects.order_by("pk"):
        try:
            _remove_pushes_of_ended_tasks(paths.repository(project))
        except (WorkspaceError, OSError) as error:
            logger.warning("the repository of %s could not be tidied: %s", project, error)


def _remove_pushes_of_ended_tasks(repository: Repository) -> None:
    if not repository.path.exists():
        return
    names = repository.git.line("for-each-ref", "--format=%(refname)", INCOMING).splitlines()
    ids = {int(name.removeprefix(f"{INCOMING}/").partition("/")[0]) for name in names}
    for task_id in Task.objects.free().filter(pk__in=ids, phase__in=ENDED).values_list("pk", flat=True):
        repository.remove_refs(f"{incoming_folder(task_id)}/")


def _valid_target(target: str) -> str:
    try:
        return valid_commit(target)
    except WorkspaceError as error:
        raise BadInput(str(error), where="target") from None


def _require_own(held: HeldTask, ref: str) -> None:
    branch = re.escape(valid_branch(held.branch))
    own = rf"refs/(heads|cat-herder-base)/{branch}|refs/cat-herder(-ignored)?/{branch}/{_LABEL}"
    if not re.fullmatch(own, ref, re.ASCII) or ".." in ref or ref.endswith((".lock", ".")):
        raise BadInput(f"{ref[:200]!r} is not a reference of task {held.task_id}", where="refs")


def _is_readable(held: HeldTask, target: str) -> bool:
    """Return whether the holder has pushed `target`, or may fetch it."""
    repository = held.repository
    if target in repository.refs(*held.readable_refs):
        return True
    if not repository.has(target):
        return False
    words = ("for-each-ref", "--count=1", "--format=x", f"--contains={target}")
    return bool(repository.git.line(*words, *held.readable_refs))


def runs_in_workspace(task: Task) -> QuerySet[Run]:
    """Return the runs of all tasks that share the workspace, oldest first."""
    sharing = Run.objects.filter(step__task=task.pk)
    if task.sequence_id:
        sharing = Run.objects.filter(step__task__sequence=task.sequence_id)
    return sharing.select_related("step__task").order_by("pk")


def is_outdated(task: Task) -> bool:
    """Return whether another host has made the last run, so that the workspace here is older than that."""
    last = runs_in_workspace(task).last()
    return last is not None and last.data_dir != paths.worker_data_dir_id()


def host_with_unrecorded_work(task: Task) -> str:
    """Return the other host that alone has the work of the last run, or "": its agent has ended.

    The run is recorded as soon as the worker there runs again, or reaches the portal again. The lease of a
    worker that died still names it.
    """
    last = runs_in_workspace(task).last()
    if last is None or last.head_commit or last.data_dir == paths.worker_data_dir_id():
        return ""
    if last.outcome == Outcome.ASKED or (last.outcome == Outcome.FINISHED and last.checks is None):
        return task.lease_owner.partition(":")[0]
    return ""

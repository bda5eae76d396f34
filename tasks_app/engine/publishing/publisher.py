"""Carry out publications and watch pull requests: the worker's thread that pushes results.

The row is the truth. Each attempt first asks the remote where its branch is, so that a worker that takes over
from a killed one neither pushes again what has arrived nor loses what has not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import close_old_connections, connection
from django.db.models import F

from tasks_app.core.errors import (
    CatHerderError,
    LeaseLost,
    MergeConflict,
    PublishingFailed,
    UpdateConflict,
    WorkspaceError,
)
from tasks_app.core.phases import Phase
from tasks_app.core.trace_context import log_context
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.publishing.pull_requests import look, open_or_update
from tasks_app.engine.temporary_faults import retry_during_faults, temporary_fault
from tasks_app.engine.traces.spans import context_of_task
from tasks_app.engine.workers.intake import Intake
from tasks_app.git import Repository
from tasks_app.git.publishing import Remote, make_commit, merged_tree
from tasks_app.models import Publication, PullRequest, Task, paths
from tasks_app.models.publication import CLAIM_SECONDS
from tasks_app.services.difference import base_of
from tasks_app.services.projects.projects import fetch
from tasks_app.services.publishing.publications import (
    last_published,
    publication_hindrances,
    publish_due,
    record_merged,
    record_published,
    record_refused,
    refuse_protected,
    tasks_to_publish,
)
from tasks_app.services.publishing.pull_request_text import commit_message
from tasks_app.services.publishing.settings import author_of, remote_of

logger = logging.getLogger(__name__)

#: Seconds between two looks for publications that are due. Each is one indexed query.
POLL_SECONDS = 1.0
#: Number of publications at the same time: one remote that hangs must not delay the others.
MAX_PUSHES = 4
#: Number of pull requests that are looked at, at the same time.
MAX_LOOKS = 2
#: The same after a look that failed: the fault, for example of the database, is logged each time.
FAULT_SECONDS = 10.0
#: Number of tasks whose pipelines publish that one round looks at.
_BATCH = 100
_RENEW_SECONDS = CLAIM_SECONDS / 4
#: Number of attempts whose worker may die or fail: the publication itself may be what kills it.
MAX_ATTEMPTS = 5
_ALREADY_THERE = "The branch is at this commit already; nothing was pushed."
_WORKERS_DIED = (
    f"The worker died or failed {MAX_ATTEMPTS} times while it published this, so it is not tried again by "
    "itself. The branch may have arrived nevertheless. Look in the worker's log, for example for a lack of "
    "memory, then publish again: the portal first asks the repository what has arrived."
)


def carry_out(publication_id: int) -> bool:
    """Publish if nobody else does. Return whether this call ended it, whatever the outcome."""
    publication = Publication.objects.claim(publication_id)
    if publication is None:
        return False
    crash_point("publication-claimed")
    with _keep_claimed(publication), log_context(context_of_task(publication.task)):
        try:
            return _carry_out_claimed(publication)
        except Exception as error:
            if temporary_fault(error):
                retry_during_faults(lambda: Publication.objects.uncount(publication))
            raise


def _carry_out_claimed(publication: Publication) -> bool:
    if publication.attempts > MAX_ATTEMPTS:
        record_refused(publication, _WORKERS_DIED)
        return True
    try:
        commit, answer = _publish(publication)
    except LeaseLost:
        return False  # another worker says how it ended
    except UpdateConflict as error:
        record_refused(publication, str(error), conflicts=error.files)
    except CatHerderError as error:
        record_refused(publication, str(error))
    except Exception as error:
        if temporary_fault(error):
            raise
        logger.exception("publication %s failed", publication.pk)
        record_refused(publication, f"The portal failed ({type(error).__name__}). Its log has the reason.")
    else:
        try:
            fault = ""
            if publication.pull_request:
                fault = open_or_update(publication)
        except LeaseLost:
            return False
        record_published(publication, commit, answer, fault=fault)
    return True


def _publish(publication: Publication) -> tuple[str, str]:
    """Let the remote's branch be at the commit; return that commit and what the remote said.

    Raises CatHerderError with the reason if it is not published.
    """
    remote = remote_of(publication.task.project)
    if remote.url != publication.url:
        raise PublishingFailed(f"Results are published to {remote.url} since then. Publish again.")
    state = remote.read(publication.branch)
    refuse_protected(publication, state.default_branch)
    commit = _commit_to_publish(publication)
    if state.commit == commit:
        return commit, _ALREADY_THERE
    # Not only when it was asked for: since then an approval may have ended.
    if hindrances := publication_hindrances(publication.task, publication.commit):
        raise PublishingFailed(" ".join(hindrances))
    expected = last_published(publication)
    if state.commit not in ("", expected):
        published = "the portal did not publish it"
        if expected:
            published = f"the portal published {expected}"
        raise PublishingFailed(
            f"Somebody else has pushed to refs/heads/{publication.branch} of {publication.url}: it is at "
            f"{state.commit}, but {published}. Nothing was overwritten. Merge or delete that branch, then "
            "publish again."
        )
    crash_point("publication-checked")
    return commit, _push_once(remote, publication, commit, expected=state.commit)


def ask_for_due(task_id: int) -> Publication | None:
    """Ask for the publication that a task’s pipeline wants, if it is due. It is carried out as others are."""
    crash_point("pipeline-publication-due")
    publication = publish_due(task_id)
    crash_point("pipeline-publication-stored")
    return publication


def _push_once(remote: Remote, publication: Publication, commit: str, *, expected: str) -> str:
    repository = paths.repository(publication.task.project)
    try:
        answer = remote.push(repository, commit, publication.branch, expected=expected)
    except PublishingFailed:
        # The push of a worker that was killed, or one whose connection broke, may have arrived meanwhile.
        if not _has_arrived(remote, publication, commit):
            raise
        answer = ""
    crash_point("publication-pushed")
    return answer


def _has_arrived(remote: Remote, publication: Publication, commit: str) -> bool:
    try:
        return remote.read(publication.branch).commit == commit
    except PublishingFailed:
        return False


def _commit_to_publish(publication: Publication) -> str:
    """Return the result's commit, or one that is made of it: updated, squashed, or both.

    Raises WorkspaceError, also if the project's branch cannot be merged.
    """
    task, commit = publication.task, publication.commit
    repository = paths.repository(task.project)
    merged = ""
    if publication.update:
        merged = _commit_to_merge(publication, repository)
    if not (merged or publication.squash):
        return commit
    tree = _merge(publication, repository) if merged else repository.tree(commit)
    parents = [commit, merged]
    message = f"Merge branch '{task.project.branch}' into {publication.branch}"
    if publication.squash:
        # Without an update, the newest commit of the project's branch that the result has.
        start = merged or _common_start(repository, commit, f"refs/source/{task.project.branch}")
        if start in ("", commit):
            start = base_of(task)
        parents, message = [start], publication.message or commit_message(task)
    # The first request for the same commit gives the commit its time.
    same = task.publications.filter(
        commit=commit,
        squash=publication.squash,
        message=publication.message,
        update=publication.update,
        merged_commit=publication.merged_commit,
        url=publication.url,
    )
    return make_commit(
        repository,
        tree,
        parents=parents,
        message=message,
        author=author_of(task.project),
        at=same.order_by("pk")[0].requested_at,
    )


def _commit_to_merge(publication: Publication, repository: Repository) -> str:
    """Return the commit of the project's branch to merge; "" if the result has it already."""
    if not publication.merged_commit:
        project = publication.task.project
        fetch(project)
        record_merged(publication, repository.head(project.branch))
    newest = publication.merged_commit
    if _common_start(repository, publication.commit, newest) == newest:
        return ""
    return newest


def _merge(publication: Publication, repository: Repository) -> str:
    """Return the tree of the result with the commit to merge. Raises UpdateConflict."""
    try:
        return merged_tree(repository, publication.commit, publication.merged_commit)
    except MergeConflict as error:
        branch = publication.task.project.branch
        raise UpdateConflict(
            f"{branch} ({publication.merged_commit}) cannot be merged into the result: {error} Nothing was "
            f"published. Let the agent merge {branch}, or publish without the update and merge it by hand.",
            error.files,
        ) from error


def _common_start(repository: Repository, one: str, other: str) -> str:
    """Return the newest commit in both histories; "" if they have nothing in common."""
    try:
        return repository.git.line("merge-base", one, other)
    except WorkspaceError:
        return ""


@contextmanager
def _keep_claimed(publication: Publication) -> Iterator[None]:
    """Renew the claim in a thread until the context ends."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEW_SECONDS):
            try:
                Publication.objects.renew(publication)
            except Exception as error:
                logger.warning("the claim of a publication could not be renewed, trying again: %s", error)
                connection.close()
        connection.close()

    thread = threading.Thread(target=renew, name="publication-renewer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Publisher(threading.Thread):
    """Looks for publications and pull requests every POLL_SECONDS until stopped.

    Errors are logged, and the next round tries again. Each worker has one. It uses no jobs in the queue:
    agents may occupy all of a worker's slots for hours.
    """

    def __init__(self, intake: Intake | None = None) -> None:
        """While `intake` is closed, nothing is begun."""
        super().__init__(name="publisher", daemon=True)
        self._intake = intake or Intake()
        self._stop_wanted = threading.Event()
        self._pushes: list[threading.Thread] = []
        self._looks: list[threading.Thread] = []
        #: When asking for the publication of a task failed, by the task's id.
        self._faulty: dict[int, float] = {}

    def run(self) -> None:
        while not self._stop_wanted.is_set():
            pause = self._run_once()
            close_old_connections()
            self._stop_wanted.wait(pause)
        connection.close()

    def stop(self) -> None:
        """Begin no more publications. One that is being pushed is taken up by the next worker."""
        self._stop_wanted.set()

    def _run_once(self) -> float:
        """Start what is due, and return the seconds until the next look."""
        if not self._intake.is_open:
            return POLL_SECONDS
        try:
            self._pushes = [thread for thread in self._pushes if thread.is_alive()]
            self._ask_for_all_due()
            free = MAX_PUSHES - len(self._pushes)
            longest_waiting = F("claimed_until").asc(nulls_first=True)
            due = Publication.objects.due().order_by(longest_waiting, "pk").values_list("pk", flat=True)
            for publication_id in due[:free]:
                fault = f"publication {publication_id} was interrupted and will be tried again"
                self._pushes.append(_start_thread(carry_out, publication_id, fault))
            self._looks = [thread for thread in self._looks if thread.is_alive()]
            free = MAX_LOOKS - len(self._looks)
            for pull_request_id in PullRequest.objects.due().values_list("pk", flat=True)[:free]:
                fault = f"looking at pull request {pull_request_id} failed"
                self._looks.append(_start_thread(look, pull_request_id, fault))
        except Exception as error:
            _log_error("looking for publications failed", error)
            return FAULT_SECONDS
        return POLL_SECONDS

    def _ask_for_all_due(self) -> None:
        """Ask for what pipelines publish. A task that fails is left out for some seconds."""
        if not Task.objects.filter(publish_due=True, phase=Phase.DONE).exists():
            return  # the query below is long, and is seldom needed
        now = time.monotonic()
        self._faulty = {task_id: at for task_id, at in self._faulty.items() if now < at + FAULT_SECONDS}
        due = tasks_to_publish().exclude(pk__in=list(self._faulty)).order_by("pk")
        for task_id in due.values_list("pk", flat=True)[:_BATCH]:
            try:
                ask_for_due(task_id)
            except Exception as error:
                self._faulty[task_id] = time.monotonic()
                _log_error(f"task {task_id} could not be published by its pipeline", error)
                close_old_connections()


def _start_thread(what: Callable[[int], object], number: int, fault: str) -> threading.Thread:
    def run() -> None:
        try:
            what(number)
        except Exception as error:
            _log_error(fault, error)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _log_error(what: str, error: Exception) -> None:
    # A temporary fault gets one line without a traceback: it may be logged every second for hours.
    logger.error("%s: %s", what, error, exc_info=None if temporary_fault(error) else error)

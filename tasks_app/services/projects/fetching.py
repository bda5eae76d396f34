"""Fetch a project's source into the portal's copy. The project's row has the result."""

from __future__ import annotations

import logging
import threading
from typing import Any

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from tasks_app.core.errors import CatHerderError
from tasks_app.core.storable import storable_text
from tasks_app.git import Fetched
from tasks_app.models import Project, Task, paths
from tasks_app.models.project import MAX_FETCH_TIME
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.decisions.citing import mark_stale

logger = logging.getLogger(__name__)

#: Seconds that a page waits for a fetch before it says that the fetch continues.
PATIENCE = 4.0
_LONGEST_FAULT = 2000


def fetch(project: Project, *, thorough: bool = False) -> list[str]:
    """Fetch from the project's source and return what had to be repaired, in sentences.

    With `thorough`, the whole copy is checked for damage. Raises WorkspaceError, whose text is also stored in
    the project's row.
    """
    try:
        fetched = paths.repository(project).fetch(thorough=thorough)
        repaired = _restore_references(project, fetched) if fetched.repaired else []
        mark_stale(project)
    except Exception as error:
        _store_result(project, fetch_fault=storable_text(str(error))[:_LONGEST_FAULT])
        raise
    _store_result(project, fetched_at=timezone.now(), fetch_fault="")
    return repaired


def check_repository(project: Project) -> list[str]:
    """Read the portal's whole copy and return what is wrong with it; empty if nothing is."""
    return paths.repository(project).problems()


def repair_repository(project: Project) -> list[str]:
    """Fetch damaged parts again and return what was done, in sentences. Raises WorkspaceError."""
    return fetch(project, thorough=True)


def _restore_references(project: Project, fetched: Fetched) -> list[str]:
    """Restore the references of tasks and return sentences, also on recorded work that is lost."""
    wanted = {ref: commit for task in project.tasks.order_by("pk") for ref, commit in _refs_of(task).items()}
    lost = paths.repository(project).restore_refs(wanted)
    done = []
    if fetched.removed:
        done.append(f"Damaged parts of the repository were moved aside: {', '.join(fetched.removed[:20])}.")
    elif wanted:
        done.append("The repository was gone and has been made again.")
    if lost:
        branches = sorted({ref.split("/", 2)[2] for ref in lost if ref.startswith("refs/heads/")})
        done.append(
            f"Recorded work is lost that the source does not have: {', '.join(branches) or 'old starts'}."
        )
    for sentence in done:
        logger.warning("project %s: %s", project, sentence)
    return done


def _refs_of(task: Task) -> dict[str, str]:
    """Return the commits of a task's work by the name of the reference."""
    refs = {
        f"refs/cat-herder-base/{task.branch}": task.base_commit,
        f"refs/cat-herder/{task.branch}/{task.pk}-restored": task.head_commit,
        f"refs/heads/{task.branch}": task.head_commit,  # of a sequence the last task's, which comes later
    }
    return {ref: commit for ref, commit in refs.items() if commit}


def fetch_meanwhile(project: Project, *, by: Principal, patience: float = PATIENCE) -> bool:
    """Fetch in a thread. Return whether it ended within `patience` seconds.

    Does nothing while another fetch runs. Raises NotAllowed for viewers.
    """
    require_actor(by, project)
    if not _claim_fetch(project):
        return False
    thread = threading.Thread(
        target=_fetch_in_thread, args=(project,), name=f"fetch-{project.pk}", daemon=True
    )
    thread.start()
    thread.join(patience)
    return not thread.is_alive()


def _claim_fetch(project: Project) -> bool:
    now = timezone.now()
    free = Q(fetching_since=None) | Q(fetching_since__lt=now - MAX_FETCH_TIME)
    return bool(Project.objects.filter(free, pk=project.pk).update(fetching_since=now))


def _fetch_in_thread(project: Project) -> None:
    try:
        fetch(project, thorough=True)
    except CatHerderError as error:
        logger.info("project %s could not be fetched: %s", project, error)
    except Exception:
        logger.exception("project %s could not be fetched", project)
    finally:
        connection.close()


def _store_result(project: Project, **values: Any) -> None:
    Project.objects.filter(pk=project.pk).update(fetching_since=None, **values)

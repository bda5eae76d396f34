"""Bringing the portal's copy of a project's repository up to date; its row says how that went."""

from __future__ import annotations

import logging
import threading
from typing import Any

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from tasks_app import places
from tasks_app.actions.access import require_actor
from tasks_app.errors import CatHerderError
from tasks_app.models import Project, User
from tasks_app.models.project import LONGEST_FETCH
from tasks_app.storable import storable_text

logger = logging.getLogger(__name__)

#: How long a page waits for a fetch before it shows that it goes on.
PATIENCE = 4.0
_LONGEST_FAULT = 2000


def fetch(project: Project) -> None:
    """Fetch from the project's source. Raises WorkspaceError, which the project's row tells as well."""
    try:
        places.repository(project).fetch()
    except Exception as error:
        _settle(project, fetch_fault=storable_text(str(error))[:_LONGEST_FAULT])
        raise
    _settle(project, fetched_at=timezone.now(), fetch_fault="")


def fetch_meanwhile(project: Project, *, by: User, patience: float = PATIENCE) -> bool:
    """Fetch in a thread of its own; whether it ended within `patience` seconds.

    While somebody fetches already, nothing is begun. Raises NotAllowed for a person who may only look.
    """
    require_actor(by, project)
    if not _claim(project):
        return False
    thread = threading.Thread(target=_fetch_alone, args=(project,), name=f"fetch-{project.pk}", daemon=True)
    thread.start()
    thread.join(patience)
    return not thread.is_alive()


def _claim(project: Project) -> bool:
    now = timezone.now()
    free = Q(fetching_since=None) | Q(fetching_since__lt=now - LONGEST_FETCH)
    return bool(Project.objects.filter(free, pk=project.pk).update(fetching_since=now))


def _fetch_alone(project: Project) -> None:
    try:
        fetch(project)
    except CatHerderError as error:
        logger.info("project %s could not be fetched: %s", project, error)
    except Exception:
        logger.exception("project %s could not be fetched", project)
    finally:
        connection.close()


def _settle(project: Project, **facts: Any) -> None:
    Project.objects.filter(pk=project.pk).update(fetching_since=None, **facts)

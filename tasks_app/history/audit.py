"""Writing down who did what (W4), in the transaction in which it was done: neither is without the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.http import QueryDict

from tasks_app.core.storable import storable, storable_text
from tasks_app.models import Action, AuditEntry, Project, Task, User

#: Of what an address asks for, an entry holds so many names with so many values of so many characters.
_NAMES, _VALUES, _LONGEST = 30, 10, 300


@dataclass(frozen=True)
class Origin:
    """From where something is done: `via` is a Channel or "" for the portal itself."""

    via: str = ""
    address: str = ""
    token: str = ""


_PORTAL = Origin()
_origin: ContextVar[Origin] = ContextVar("origin", default=_PORTAL)


@contextmanager
def acting_from(origin: Origin) -> Iterator[None]:
    """What is recorded inside came from there."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def origin() -> Origin:
    return _origin.get()


def record(
    action: Action,
    *,
    by: User | None = None,
    project: Project | None = None,
    task: Task | None = None,
    subject: str = "",
    actor_name: str = "",
    **detail: Any,
) -> AuditEntry:
    """Store one entry. A task says its project and, if nothing else does, the subject.

    `actor_name` names who acted where there is no `by`: an agent, or a login that failed.
    """
    project = project or (task.project if task else None)
    subject = subject or (str(task) if task else str(project) if project else "")
    source = origin()
    return AuditEntry.objects.create(
        action=action,
        actor=by,
        actor_name=storable_text(by.shown_name if by else actor_name)[:200],
        via=source.via,
        token=source.token,
        address=source.address,
        project=project,
        project_name=project.name if project else "",
        task=task,
        subject=storable_text(subject)[:300],
        detail=storable(detail),
    )


def asked_for(query: QueryDict) -> dict[str, list[str]]:
    """What an address asked for, as an entry may hold it: anybody can put 60 kB of anything behind a `?`."""
    return {
        name[:_LONGEST]: [value[:_LONGEST] for value in values[:_VALUES]]
        for name, values in islice(query.lists(), _NAMES)
    }

"""Record who did what (W4), in the same transaction as the action itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from tasks_app.core.text import storable, storable_text
from tasks_app.models import Action, AuditEntry, Project, Task, User

#: Limits of a query string in an entry: parameters, values of each, characters of each.
_MAX_PARAMETERS, _MAX_VALUES, _MAX_LENGTH = 30, 10, 300


@dataclass(frozen=True)
class ActionOrigin:
    """The origin of an action. `via` is a Channel, or "" for the portal itself.

    `program` is how the program calls itself through which a person acts; empty for pages and terminals.
    """

    via: str = ""
    ip_address: str = ""
    token: str = ""
    program: str = ""


_PORTAL = ActionOrigin()
#: Called with each new entry, in the transaction of its action; what it raises undoes the action.
_witness: ContextVar[Callable[[AuditEntry], None] | None] = ContextVar("witness", default=None)
_origin: ContextVar[ActionOrigin] = ContextVar("origin", default=_PORTAL)


@contextmanager
def acting_from(origin: ActionOrigin) -> Iterator[None]:
    """Record all actions inside this context as coming from `origin`."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def current_origin() -> ActionOrigin:
    return _origin.get()


@contextmanager
def witnessed_by(witness: Callable[[AuditEntry], None]) -> Iterator[None]:
    """Call `witness` with each entry inside this context, in the transaction of the action itself."""
    token = _witness.set(witness)
    try:
        yield
    finally:
        _witness.reset(token)


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
    """Store one entry. A task also gives the project and, by default, the subject.

    `actor_name` says who acted if there is no `by`: an agent, or the username of a failed login.
    """
    if task and not project:
        project = task.project
    if by:
        actor_name = by.shown_name
    subject = subject or str(task or project or "")
    source = current_origin()
    entry = AuditEntry.objects.create(
        action=action,
        actor=by,
        actor_name=storable_text(actor_name)[:200],
        via=source.via,
        token=source.token,
        ip_address=source.ip_address,
        project=project,
        project_name=project.name if project else "",
        task=task,
        subject=storable_text(subject)[:300],
        detail=storable(detail),
    )
    if witness := _witness.get():
        witness(entry)
    return entry


def record_once_an_hour(action: Action, *, by: User, subject: str, most: int = 100, **more: Any) -> None:
    """Record what a script may do every second: once an hour for each subject, `most` subjects a user."""
    entries = AuditEntry.objects.filter(action=action, actor=by, at__gt=timezone.now() - timedelta(hours=1))
    subjects = set(entries.order_by().values_list("subject", flat=True)[: most + 1])
    subject = storable_text(subject)[:300]
    if subject not in subjects and len(subjects) < most:
        record(action, by=by, subject=subject, **more)


def truncated_query(query: QueryDict) -> dict[str, list[str]]:
    """Return a URL's query for an entry, truncated: a query string can have 60 kB."""
    return {
        name[:_MAX_LENGTH]: [value[:_MAX_LENGTH] for value in values[:_MAX_VALUES]]
        for name, values in islice(query.lists(), _MAX_PARAMETERS)
    }

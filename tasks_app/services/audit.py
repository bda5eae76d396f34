"""Filters of the audit log: the same for the page and the API."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Self

from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.utils import timezone

from tasks_app.core.text import storable_text
from tasks_app.models import Action, AuditEntry
from tasks_app.permissions import Principal, audit_entries_visible_to

_MAX_LENGTH = 300


@dataclass(frozen=True)
class AuditFilters:
    """Unset filters are empty. `since` and `until` are days of the reader, both included.

    The page offers all but `via` and `task`.
    """

    q: str = ""
    person: str = ""
    action: str = ""
    project: str = ""
    via: str = ""
    task: int | None = None
    since: date | None = None
    until: date | None = None

    @classmethod
    def from_query(cls, query: QueryDict) -> Self:
        """Return the filters in a URL's query, without impossible values."""
        texts: dict[str, Any] = {
            name: storable_text(query.get(name, "").replace("\x00", ""))[:_MAX_LENGTH].strip()
            for name in ("q", "person", "project")
        }
        action = query.get("action", "")
        return cls(
            **texts,
            action=action if action in Action.values else "",
            since=_valid_day(query.get("from", "")),
            until=_valid_day(query.get("to", "")),
        )

    def __bool__(self) -> bool:
        return bool(self.url_parameters())

    def url_parameters(self) -> dict[str, Any]:
        names = {"since": "from", "until": "to"}
        values = {names.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value}

    def entries_visible_to(self, principal: Principal) -> QuerySet[AuditEntry]:
        """Return the matching entries that the principal may see."""
        wanted = Q()
        if self.person:
            wanted &= Q(actor__username__iexact=self.person) | Q(actor_name__icontains=self.person)
        if self.action:
            wanted &= Q(action=self.action)
        if self.project:
            wanted &= Q(project_name=self.project)
        if self.via:
            wanted &= Q(via=self.via)
        if self.task:
            wanted &= Q(task=self.task)
        if self.since:
            wanted &= Q(at__gte=_midnight(self.since))
        if self.until:
            wanted &= Q(at__lt=_midnight(self.until + timedelta(days=1)))
        return audit_entries_visible_to(principal).filter(wanted).search(self.q)


def _valid_day(text: str) -> date | None:
    """Return the day of an ISO date whose neighbours exist too, in every time zone."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    if date(1900, 1, 1) <= day <= date(9000, 1, 1):
        return day
    return None


def _midnight(day: date) -> datetime:
    zone = timezone.get_current_timezone()
    return datetime.combine(day, time(), zone).astimezone(UTC)

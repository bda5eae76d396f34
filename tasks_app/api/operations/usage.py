"""Usage: tokens, dollars and waiting of a period."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from tasks_app.api.door import doors, principal_of
from tasks_app.api.filtering import Day, Name
from tasks_app.api.operation import responses
from tasks_app.api.schemas.base import Used
from tasks_app.api.schemas.usage import DayPart, Part, ToldApart, UsageReport, Waited
from tasks_app.core.errors import BadInput
from tasks_app.core.types import Usage
from tasks_app.history.statistics import By
from tasks_app.models import Scope
from tasks_app.reporting.facts import usage_facts
from tasks_app.reporting.usage import LONGEST, Period, Spent, spent, waiting

router = Router(tags=["Usage"])

_BY = {ToldApart.MODEL: By.MODEL, ToldApart.PROJECT: By.PROJECT, ToldApart.PERSON: By.USER}
_DEFAULT = timedelta(days=29)


class UsageFilters(Schema):
    project: Name = Field("", description="Only those of the project of that name.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC; else 30 days ago.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC; else today.")
    by: ToldApart = Field(ToldApart.MODEL, description="By what `days` are told apart.")


@router.get("/usage", response=responses(UsageReport), auth=doors(Scope.READ))
def get_usage(request: HttpRequest, only: Query[UsageFilters]) -> UsageReport:
    """Tokens and dollars of the projects that you may see, and how long was worked and waited."""
    principal, period = principal_of(request), _period(only)
    used = spent(principal, period, only.project, _BY[only.by])
    waited = waiting(principal, period, only.project)
    return UsageReport(
        since=period.since.isoformat(),
        until=period.until.isoformat(),
        **_used(used.total),
        before=Used(**_used(used.before)),
        models=_parts(used.parts[By.MODEL]),
        projects=_parts(used.parts[By.PROJECT]),
        people=_parts(used.parts[By.USER]),
        days=_days(used),
        waited=Waited(
            tasks=waited.tasks,
            working_seconds=round(waited.working, 3),
            paused_seconds=round(waited.paused, 3),
            questions=waited.questions,
            answered=waited.answered,
            median_seconds=None if waited.median is None else round(waited.median, 3),
        ),
    )


def _period(only: UsageFilters) -> Period:
    until = only.until or timezone.now().date()
    since = only.since or until - _DEFAULT
    if since > until:
        raise BadInput(f"it begins on {since} and ends before that, on {until}", where="query.from")
    if until - since > LONGEST:
        raise BadInput(f"a period has at most {LONGEST.days:,} days", where="query.from")
    return Period(since, until)


def _used(usage: Usage) -> dict[str, Any]:
    return dict(usage_facts(usage))


def _parts(parts: Mapping[str, Usage]) -> list[Part]:
    """The most expensive first."""
    ordered = sorted(parts.items(), key=lambda part: (-part[1].cost_usd, part[0]))
    return [Part(name=name, **_used(usage)) for name, usage in ordered]


def _days(used: Spent) -> list[DayPart]:
    return [
        DayPart(day=day.isoformat(), name=name, **_used(usage))
        for day, parts in sorted(used.by_day.items())
        for name, usage in sorted(parts.items())
    ]

"""Usage: tokens, dollars and waiting of a period."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from tasks_app.api.auth import doors, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.filters import Day, Name
from tasks_app.api.schemas.usage import ToldApart
from tasks_app.core.errors import BadInput
from tasks_app.history.statistics import By
from tasks_app.models import Scope
from tasks_app.reporting.schemas.usage import UsageReport
from tasks_app.reporting.usage import MAX_PERIOD, Period, usage_in_period, waiting_times

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
    used = usage_in_period(principal, period, only.project, _BY[only.by])
    return UsageReport.of_period(period, used, waiting_times(principal, period, only.project))


def _period(only: UsageFilters) -> Period:
    until = only.until or timezone.now().date()
    since = only.since or until - _DEFAULT
    if since > until:
        raise BadInput(f"it begins on {since} and ends before that, on {until}", where="query.from")
    if until - since > MAX_PERIOD:
        raise BadInput(f"a period has at most {MAX_PERIOD.days:,} days", where="query.from")
    return Period(since, until)

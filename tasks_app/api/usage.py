"""Usage of a period: tokens, dollars, working and waiting time."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import Day, Name, responses
from tasks_app.core.errors import BadInput
from tasks_app.models import Scope
from tasks_app.schemas.usage import UsageReport, usage_report
from tasks_app.services.usage.answer_times import answer_times
from tasks_app.services.usage.usage import (
    MAX_PERIOD,
    By,
    Period,
    question_figures,
    usage_in_period,
    waiting_times,
)


class UsageGrouping(StrEnum):
    MODEL = "model"
    PROJECT = "project"
    PERSON = "person"


router = Router(tags=["Usage"])

_BY = {UsageGrouping.MODEL: By.MODEL, UsageGrouping.PROJECT: By.PROJECT, UsageGrouping.PERSON: By.USER}
_DEFAULT = timedelta(days=29)


class UsageFilters(Schema):
    project: Name = Field("", description="Only usage of the project with this name.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC; else 30 days ago.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC; else today.")
    by: UsageGrouping = Field(UsageGrouping.MODEL, description="How `days` are grouped.")


@router.get("/usage", response=responses(UsageReport), auth=authenticators(Scope.READ))
def get_usage(request: HttpRequest, only: Query[UsageFilters]) -> UsageReport:
    """Return tokens, dollars, working and waiting time, and questions, of the projects that you may see."""
    until = only.until or timezone.now().date()
    since = only.since or until - _DEFAULT
    if since > until:
        raise BadInput(f"the period begins on {since} and ends earlier, on {until}", where="query.from")
    if until - since > MAX_PERIOD:
        raise BadInput(f"a period has at most {MAX_PERIOD.days:,} days", where="query.from")
    principal, period = principal_of(request), Period(since, until)
    used = usage_in_period(principal, period, only.project, _BY[only.by])
    waited = waiting_times(principal, period, only.project)
    figures = question_figures(principal, period, only.project)
    return usage_report(period, used, waited, figures, answer_times(principal, period, only.project))

"""Filters that lists of the API share with the history page."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any

from ninja import Schema
from pydantic import BeforeValidator, Field

from tasks_app.api.base import Storable
from tasks_app.services.search.filters import HistoryFilters

Name = Annotated[Storable, Field(max_length=300)]


def _as_iso(value: Any) -> Any:
    """Accept ISO dates only: pydantic also reads a number as seconds since 1970."""
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise ValueError("a day is written as in 2026-03-01")
    return value


Day = Annotated[date, BeforeValidator(_as_iso), Field(ge=date(1900, 1, 1), le=date(8999, 12, 31))]


class SearchFilters(Schema):
    """Filters that tasks and questions share."""

    q: Name = Field(
        "", description='Matches all words; `"a phrase"`, `-without`; the last word may be a prefix.'
    )
    project: Name = Field("", description="Only those of the project with this name.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC, as in 2026-03-01.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC.")

    def filters(self, **other: Any) -> HistoryFilters:
        """Return the filters of the search; `other` are filters of the search that have other names here."""
        known = HistoryFilters.__dataclass_fields__
        values = {name: value for name, value in self.model_dump().items() if name in known}
        return HistoryFilters(**{**values, **other})

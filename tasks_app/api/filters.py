"""The filters that lists of the API have in common with the history page."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any

from ninja import Schema
from pydantic import BeforeValidator, Field

from tasks_app.api.schemas.base import Storable
from tasks_app.reporting.search.filters import HistoryFilters

Name = Annotated[Storable, Field(max_length=300)]


def _as_iso(value: Any) -> Any:
    """Pydantic takes `0` for a day too: so many seconds after 1970."""
    if isinstance(value, str) and not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise ValueError("a day is written as in 2026-03-01")
    return value


Day = Annotated[date, BeforeValidator(_as_iso), Field(ge=date(1900, 1, 1), le=date(8999, 12, 31))]


class Searched(Schema):
    """What can be asked of tasks as of questions."""

    q: Name = Field(
        "", description='All these words must be there; `"as a phrase"`, `-without`, the last may be begun.'
    )
    project: Name = Field("", description="Only those of the project of that name.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC, as in 2026-03-01.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC.")

    def filters(self, **other: Any) -> HistoryFilters:
        """The same for the search; `other` is said in the search's own way."""
        known = HistoryFilters.__dataclass_fields__
        said = {name: value for name, value in self.model_dump().items() if name in known}
        return HistoryFilters(**{**said, **other})

"""Keyset pagination: a cursor is the id of the last row, so no row is skipped or repeated."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from ninja import Schema
from pydantic import Field

from tasks_app.api.base import Number

MAX_LIMIT = 100
_Row = TypeVar("_Row", bound=Model)


class Paging(Schema):
    cursor: Number | None = Field(None, description="The end of the previous page, as in its `next`.")
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = Field(
        50, description=f"Rows on a page, up to {MAX_LIMIT}."
    )


def page_of(
    request: HttpRequest, rows: QuerySet[_Row], paging: Paging, *, newest_first: bool = True
) -> tuple[list[_Row], str | None]:
    """Return the rows of the page, and the URL of the next one."""
    if paging.cursor is not None:
        rows = rows.filter(**{"pk__lt" if newest_first else "pk__gt": paging.cursor})
    found = list(rows.order_by("-pk" if newest_first else "pk")[: paging.limit + 1])
    if len(found) <= paging.limit:
        return found, None
    found.pop()
    return found, url_with(request, cursor=found[-1].pk)


def url_with(request: HttpRequest, **changed: Any) -> str:
    """Return the URL of this request with other parameters."""
    query = request.GET.copy()
    for name, value in changed.items():
        query[name] = str(value)
    return f"{request.path}?{query.urlencode()}"

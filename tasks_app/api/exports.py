"""Lists that are taken away whole, as the pages offer them: streamed, and noted in the audit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Schema

from tasks_app.api.auth import principal_of
from tasks_app.history.audit import record, truncated_query
from tasks_app.models import Action
from tasks_app.reporting import downloads

#: The media types of what comes.
KINDS = ("application/json", "text/csv")


class Taken(Schema):
    form: Literal["csv", "json"] = Field("json", alias="format", description="The form of the table.")


def taken(
    request: HttpRequest, columns: list[str], rows: Iterable[dict[str, Any]], *, name: str, which: Taken
) -> StreamingHttpResponse:
    """The rows as a file. Call it with rows that are read while they are sent."""
    filters = truncated_query(request.GET)
    record(Action.EXPORTED, by=principal_of(request).user, subject=name, form=which.form, filters=filters)
    return downloads.export_rows(columns, rows, name=name, file_format=which.form)

"""Whole lists as CSV or JSON: streamed, and recorded in the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Schema

from tasks_app.api.auth import principal_of
from tasks_app.history.audit import record, truncated_query
from tasks_app.models import Action
from tasks_app.services import exports

#: The media types of an export.
KINDS = ("application/json", "text/csv")


class ExportFormat(Schema):
    form: Literal["csv", "json"] = Field("json", alias="format", description="The format of the table.")


def export_response(
    request: HttpRequest,
    columns: list[str],
    rows: Iterable[dict[str, Any]],
    *,
    name: str,
    which: ExportFormat,
) -> StreamingHttpResponse:
    """Return the rows as a file. Pass rows that are read while they are sent."""
    filters = truncated_query(request.GET)
    record(Action.EXPORTED, by=principal_of(request).user, subject=name, form=which.form, filters=filters)
    return exports.export_rows(columns, rows, name=name, file_format=which.form)

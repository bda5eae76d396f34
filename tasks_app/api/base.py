"""What all schemas and lists of the API share: base classes, declarations, filters, pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, Literal, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Path, Schema
from pydantic import BeforeValidator, ConfigDict, Field

from tasks_app.api.auth import principal_of
from tasks_app.history.audit import record, truncated_query
from tasks_app.models import Action
from tasks_app.services import exports
from tasks_app.services.list_filters import ListFilters
from tasks_app.services.tasks import MAX_MESSAGE

#: The largest id that the databases can store.
LARGEST = 2**63 - 1
_NUMBER = {"ge": 1, "le": LARGEST}

Number = Annotated[int, Field(**_NUMBER)]
TaskId = Annotated[int, Path(**_NUMBER, description="The task's id.")]
SequenceId = Annotated[int, Path(**_NUMBER, description="The sequence's id.")]
QuestionId = Annotated[int, Path(**_NUMBER, description="The question's id.")]
InvitationId = Annotated[int, Path(**_NUMBER, description="The invitation's id.")]
TargetId = Annotated[int, Path(**_NUMBER, description="The target's id.")]
DeliveryId = Annotated[int, Path(**_NUMBER, description="The delivery's id.")]
TokenId = Annotated[int, Path(**_NUMBER, description="The token's id.")]
DecisionNumber = Annotated[
    int, Path(ge=1, le=2**31 - 1, description="The number of the decision: 17 for D-17.")
]
Position = Annotated[int, Path(ge=1, le=32767, description="The step's position in the pipeline, from 1.")]
ProjectName = Annotated[
    str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$", description="The project's name, for example `sample`.")
]
Username = Annotated[str, Path(pattern=r"^[A-Za-z0-9_@.+-]{1,150}$", description="The user name.")]
#: Strict types in a body: 0 and "no" must not pass as false, nor true as 1.
Flag = Annotated[bool, Field(strict=True)]
ExactNumber = Annotated[int, Field(**_NUMBER, strict=True)]
Threshold = Annotated[int, Field(ge=0, le=5, strict=True)]
#: PostgreSQL stores no NUL.
Storable = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class Input(Schema):
    """Base of request bodies: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Fault(Schema):
    where: str = Field(description="The place of the error, for example `body.threshold` or `task:2`.")
    message: str = Field(description="What is wrong there.")


class Problem(Schema):
    """Problem details, RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind of problem: a URL that explains it.")
    title: str = Field(description="The kind in a few words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What is wrong in this case, for people.")
    errors: list[Fault] = Field(description="For input that is not usable: each error and its place.")


# Declarations of operations for the OpenAPI document: their problems, and responses that are not JSON.


#: Problems that every operation may return.
ALWAYS = (401, 403, 429)


#: The key under which an operation declares its media types, until `app.document` moves them.
CONTENT = "x-content"
_TEXT = {"type": "string"}
_ROWS = {"type": "array", "items": {"type": "object"}}


def sends(*kinds: str) -> dict[str, Any]:
    """Return `openapi_extra` for a streamed response in one of these media types."""
    return {CONTENT: {kind: {"schema": _ROWS if kind.endswith("json") else _TEXT} for kind in kinds}}


def responses(success: Any, *problems: int, status: int = 200, **special: Any) -> dict[int, Any]:
    """Return schemas by status: of the success, and of problems. `s409=…` sets another schema for one."""
    kinds: dict[int, Any] = dict.fromkeys(sorted({*problems, *ALWAYS, 400}), Problem)
    return {status: success, **kinds, **{int(name[1:]): schema for name, schema in special.items()}}


# Filters that lists of the API share with the history page.


Name = Annotated[Storable, Field(max_length=300)]
#: What a person writes to the agent of a task that goes on.
AgentMessage = Annotated[Storable, Field(max_length=MAX_MESSAGE)]


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
    project: Name = Field("", description="Only rows of the project with this name.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC, as in 2026-03-01.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC.")

    def filters(self, **other: Any) -> ListFilters:
        """Return the filters of the search; `other` are filters of the search that have other names here."""
        known = ListFilters.__dataclass_fields__
        values = {name: value for name, value in self.model_dump().items() if name in known}
        return ListFilters(**{**values, **other})


# Keyset pagination: a cursor is the id of the last row, so no row is skipped or repeated.


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
    following, order = ("pk__lt", "-pk") if newest_first else ("pk__gt", "pk")
    if paging.cursor is not None:
        rows = rows.filter(**{following: paging.cursor})
    return page_from(request, rows.order_by(order), paging)


def page_from(request: HttpRequest, rows: QuerySet[_Row], paging: Paging) -> tuple[list[_Row], str | None]:
    """Return the first rows as a page, in their order, and the URL of the next one."""
    found = list(rows[: paging.limit + 1])
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


# Whole lists as CSV or JSON: streamed, and recorded in the audit log.


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

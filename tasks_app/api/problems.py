"""Errors of the API as problem details (RFC 9457), one kind for each cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from tasks_app.core.errors import (
    AnswerInvalid,
    AnswerTooLong,
    BadInput,
    CatHerderError,
    DecisionChanged,
    IllegalMove,
    NotAllowed,
    NotOpen,
    ResultChanged,
    TooLateToUndo,
    WorkspaceError,
)
from tasks_app.core.text import storable
from tasks_app.permissions import HiddenRow
from tasks_app.services.accounts import record_refusal

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/v1/docs"
#: Errors in one response. A body can have a hundred thousand.
MAX_ERRORS = 50


@dataclass(frozen=True)
class Description:
    status: int
    title: str
    sentence: str


class Kind(Enum):
    """Every cause of an error; the value is its name in a problem's `type`."""

    BAD_INPUT = "bad-input"
    NOT_LOGGED_IN = "not-logged-in"
    NOT_ALLOWED = "not-allowed"
    SCOPE_MISSING = "scope-missing"
    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    CONFLICT = "conflict"
    NOT_OPEN = "not-open"
    KEY_IN_USE = "key-in-use"
    KEY_DONE = "key-done"
    TOO_LONG = "too-long"
    KEY_REUSED = "key-reused"
    TOO_MANY_REQUESTS = "too-many-requests"
    PORTAL_AT_FAULT = "portal-at-fault"
    DATABASE_UNAVAILABLE = "database-unavailable"

    @property
    def description(self) -> Description:
        return DESCRIPTIONS[self]

    @property
    def url(self) -> str:
        """The URL of its explanation."""
        return f"{DOCS}#problem-{self.value}"


DESCRIPTIONS: Mapping[Kind, Description] = {
    Kind.BAD_INPUT: Description(400, "The input is not usable", "`errors` says what is wrong and where."),
    Kind.NOT_LOGGED_IN: Description(
        401, "Authentication required", "The token is missing, unknown, expired or revoked."
    ),
    Kind.NOT_ALLOWED: Description(
        403, "Not allowed", "You may see this, but your role does not allow this action."
    ),
    Kind.SCOPE_MISSING: Description(403, "Scope missing", "The token lacks the scope for this action."),
    Kind.NOT_FOUND: Description(404, "Not found", "It does not exist, or you may not see it."),
    Kind.METHOD_NOT_ALLOWED: Description(405, "Method not allowed", "The header `Allow` lists the methods."),
    Kind.CONFLICT: Description(
        409, "Not possible in this state", "The present state does not allow this action."
    ),
    Kind.NOT_OPEN: Description(
        409, "The question is not open", "`question` has the answer, who gave it, and when."
    ),
    Kind.KEY_IN_USE: Description(
        409, "The same request is in progress", "Repeat it after `Retry-After` seconds."
    ),
    Kind.KEY_DONE: Description(
        409, "The request was carried out", "Its response was lost; look at what it was to change."
    ),
    Kind.TOO_LONG: Description(413, "Too long", "`detail` says how much this installation accepts."),
    Kind.KEY_REUSED: Description(422, "Key already used", "Use a new Idempotency-Key for each request."),
    Kind.TOO_MANY_REQUESTS: Description(
        429, "Too many requests", "Repeat the request after `Retry-After` seconds."
    ),
    Kind.PORTAL_AT_FAULT: Description(
        500, "Internal error", "The portal's log has the reason. No change was made in part."
    ),
    Kind.DATABASE_UNAVAILABLE: Description(
        503, "Database unavailable", "Nothing was changed. Repeat the request after `Retry-After` seconds."
    ),
}

_BY_STATUS = {kind.description.status: kind for kind in reversed(Kind)}
_KINDS: tuple[tuple[type[CatHerderError], Kind], ...] = (
    (NotAllowed, Kind.NOT_ALLOWED),
    (NotOpen, Kind.NOT_OPEN),
    (AnswerTooLong, Kind.TOO_LONG),
    (IllegalMove, Kind.CONFLICT),
    (DecisionChanged, Kind.CONFLICT),
    (ResultChanged, Kind.CONFLICT),
    (TooLateToUndo, Kind.CONFLICT),
    (WorkspaceError, Kind.CONFLICT),
    (CatHerderError, Kind.BAD_INPUT),
)


class Refused(Exception):
    """Ends a request with a problem of this kind."""

    def __init__(
        self, kind: Kind, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = headers or {}
        self.more = more


def problem(
    kind: Kind,
    detail: str,
    *,
    errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> HttpResponse:
    """Return the response; `errors` are pairs of `where` and `message`, `more` are further members."""
    body = {
        "type": kind.url,
        "title": kind.description.title,
        "status": kind.description.status,
        "detail": detail,
        "errors": list(errors),
        **more,
    }
    return JsonResponse(
        storable(body), status=kind.description.status, content_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def kind_of_status(status: int) -> Kind:
    """Return the kind of an error that only has a status."""
    return _BY_STATUS.get(status, Kind.BAD_INPUT if status < 500 else Kind.PORTAL_AT_FAULT)


def problem_of(error: CatHerderError, **more: Any) -> HttpResponse:
    kind = next(kind for error_class, kind in _KINDS if isinstance(error, error_class))
    errors = []
    if isinstance(error, BadInput | AnswerInvalid):
        errors.append({"where": error.where, "message": error.message})
    return problem(kind, str(error), errors=errors, **more)


def explain_errors(api: NinjaAPI) -> None:
    """Turn every exception that an operation may raise into a problem."""
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(CatHerderError, _domain_error)
    api.add_exception_handler(Http404, _not_found)
    api.add_exception_handler(ValidationError, _invalid)
    api.add_exception_handler(RequestDataTooBig, _too_large)
    api.add_exception_handler(AuthenticationError, _unauthenticated)
    api.add_exception_handler(HttpError, _http_error)


def _domain_error(request: HttpRequest, error: Any) -> HttpResponse:
    return problem_of(error)


def _http_error(request: HttpRequest, error: Any) -> HttpResponse:
    """Handle Ninja's own errors: a body that is not JSON."""
    return problem(kind_of_status(error.status_code), str(error))


def _refused(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(error.kind, error.detail, headers=error.headers, **error.more)


def _not_found(request: HttpRequest, error: Any) -> HttpResponse:
    if isinstance(error, HiddenRow):
        record_refusal(error)
    return problem(Kind.NOT_FOUND, f"{request.path} does not exist, or you may not see it.")


def _unauthenticated(request: HttpRequest, error: Any) -> HttpResponse:
    detail = "Send “Authorization: Bearer” with a token. Create one in the portal, at /me/tokens/."
    return problem(Kind.NOT_LOGGED_IN, detail, headers={"WWW-Authenticate": 'Bearer realm="Cat Herder"'})


def _too_large(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(Kind.TOO_LONG, "The request is too large for this installation and was not read.")


def _invalid(request: HttpRequest, error: Any) -> HttpResponse:
    """Return the errors of the input. An id in the path that no row can have is not found."""
    if any(fault["loc"][0] == "path" for fault in error.errors):
        return _not_found(request, error)
    errors = [{"where": _place(fault["loc"]), "message": fault["msg"]} for fault in error.errors[:MAX_ERRORS]]
    detail = "; ".join(f"{one['where']}: {one['message']}" for one in errors[:3])
    return problem(Kind.BAD_INPUT, detail, errors=errors)


def _place(parts: Sequence[str | int]) -> str:
    """Return the place as `body.answers`, without the name of the function's parameter, which Ninja adds.

    A query parameter is flat, whether it is given once or several times.
    """
    source, *rest = [str(part) for part in parts]
    if source == "query":
        return ".".join([source, *[part for part in rest if not part.isdigit()][-1:]])
    if source == "body":
        rest = rest[1:]
    return ".".join([source, *rest])

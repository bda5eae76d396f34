"""What the API says when something is wrong: problem details (RFC 9457), one kind for each cause."""

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
    AnswerEmpty,
    AnswerTooLong,
    BadInput,
    CatHerderError,
    IllegalMove,
    NotAllowed,
    NotOpen,
    WorkspaceError,
)
from tasks_app.core.storable import storable

MEDIA_TYPE = "application/problem+json"
DOCS = "/api/v1/docs"
#: Faults of one request that are told: a body can have a hundred thousand.
MOST_TOLD = 50


@dataclass(frozen=True)
class Facts:
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
    TOO_LONG = "too-long"
    KEY_REUSED = "key-reused"
    TOO_MANY_REQUESTS = "too-many-requests"
    PORTAL_AT_FAULT = "portal-at-fault"
    DATABASE_UNAVAILABLE = "database-unavailable"

    @property
    def facts(self) -> Facts:
        return FACTS[self]

    @property
    def address(self) -> str:
        """Where it is explained."""
        return f"{DOCS}#problem-{self.value}"


FACTS: Mapping[Kind, Facts] = {
    Kind.BAD_INPUT: Facts(400, "The input is not usable", "`errors` says what is wrong and where."),
    Kind.NOT_LOGGED_IN: Facts(
        401, "Who are you?", "No token came, or one that is unknown, expired or revoked."
    ),
    Kind.NOT_ALLOWED: Facts(
        403, "You may not do that", "You may see it, but your role does not let you act."
    ),
    Kind.SCOPE_MISSING: Facts(403, "The token may not do that", "You might, but this token lacks the scope."),
    Kind.NOT_FOUND: Facts(404, "There is no such thing", "It does not exist, or you may not know of it."),
    Kind.METHOD_NOT_ALLOWED: Facts(
        405, "Not in this way", "The header `Allow` says which methods there are."
    ),
    Kind.CONFLICT: Facts(409, "Not in this state", "It is in a state in which that cannot be done."),
    Kind.NOT_OPEN: Facts(
        409, "The question takes no answer", "`question` says by whom it was answered, when and what."
    ),
    Kind.KEY_IN_USE: Facts(
        409, "The same request is being worked on", "Send it again after `Retry-After` seconds."
    ),
    Kind.TOO_LONG: Facts(413, "That is too long", "The installation takes less; `detail` says how much."),
    Kind.KEY_REUSED: Facts(
        422, "The key belongs to another request", "An Idempotency-Key stands for one request only."
    ),
    Kind.TOO_MANY_REQUESTS: Facts(429, "Too many requests", "Send it again after `Retry-After` seconds."),
    Kind.PORTAL_AT_FAULT: Facts(
        500, "The portal is at fault", "Its log has the reason. Nothing was changed half-way."
    ),
    Kind.DATABASE_UNAVAILABLE: Facts(
        503, "The database cannot be used", "Nothing was changed. Send it again after `Retry-After` seconds."
    ),
}

_BY_STATUS = {kind.facts.status: kind for kind in reversed(Kind)}
_KINDS: tuple[tuple[type[CatHerderError], Kind], ...] = (
    (NotAllowed, Kind.NOT_ALLOWED),
    (NotOpen, Kind.NOT_OPEN),
    (AnswerTooLong, Kind.TOO_LONG),
    (IllegalMove, Kind.CONFLICT),
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
    """The answer; `errors` are pairs of `where` and `message`, `more` further members of the object."""
    body = {
        "type": kind.address,
        "title": kind.facts.title,
        "status": kind.facts.status,
        "detail": detail,
        "errors": list(errors),
        **more,
    }
    return JsonResponse(
        storable(body), status=kind.facts.status, content_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def of_status(status: int) -> Kind:
    """The kind that stands for an error which only has a status."""
    return _BY_STATUS.get(status, Kind.BAD_INPUT if status < 500 else Kind.PORTAL_AT_FAULT)


def of_error(error: CatHerderError, **more: Any) -> HttpResponse:
    kind = next(kind for error_class, kind in _KINDS if isinstance(error, error_class))
    errors = []
    if isinstance(error, BadInput | AnswerEmpty):
        errors.append({"where": error.where, "message": error.message})
    return problem(kind, str(error), errors=errors, **more)


def explain_errors(api: NinjaAPI) -> None:
    """Every exception that an operation may end with becomes a problem."""
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(CatHerderError, _told)
    api.add_exception_handler(Http404, _not_found)
    api.add_exception_handler(ValidationError, _invalid)
    api.add_exception_handler(RequestDataTooBig, _too_long)
    api.add_exception_handler(AuthenticationError, _stranger)
    api.add_exception_handler(HttpError, _of_ninja)


def _told(request: HttpRequest, error: Any) -> HttpResponse:
    return of_error(error)


def _of_ninja(request: HttpRequest, error: Any) -> HttpResponse:
    """A body that is no JSON."""
    return problem(of_status(error.status_code), str(error))


def _refused(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(error.kind, error.detail, headers=error.headers, **error.more)


def _not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(Kind.NOT_FOUND, f"There is nothing at {request.path} that you may see.")


def _stranger(request: HttpRequest, error: Any) -> HttpResponse:
    detail = "Send “Authorization: Bearer” with a token. You make one in the portal, at /me/tokens/."
    return problem(Kind.NOT_LOGGED_IN, detail, headers={"WWW-Authenticate": 'Bearer realm="Cat Herder"'})


def _too_long(request: HttpRequest, error: Any) -> HttpResponse:
    return problem(Kind.TOO_LONG, "The request is far too long for this installation and was not read.")


def _invalid(request: HttpRequest, error: Any) -> HttpResponse:
    """A number in an address that no row can have is an address at which there is nothing."""
    if any(fault["loc"][0] == "path" for fault in error.errors):
        return _not_found(request, error)
    errors = [{"where": _place(fault["loc"]), "message": fault["msg"]} for fault in error.errors[:MOST_TOLD]]
    told = "; ".join(f"{one['where']}: {one['message']}" for one in errors[:3])
    return problem(Kind.BAD_INPUT, told, errors=errors)


def _place(parts: Sequence[str | int]) -> str:
    """`body.answers`: Ninja puts the name of the function's parameter in between, which means nothing.

    A parameter of the address is flat, whether it is given once or several times.
    """
    source, *rest = [str(part) for part in parts]
    if source == "query":
        return ".".join([source, *[part for part in rest if not part.isdigit()][-1:]])
    return ".".join([source, *(rest[1:] if source == "body" else rest)])

"""The API, version 1: its routers and its OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any

from django.http import HttpRequest
from django.urls import URLPattern
from ninja import NinjaAPI
from ninja.operation import Operation

from tasks_app.api import (
    accounts,
    decisions,
    groups,
    notifications,
    projects,
    publishing,
    questions,
    reviews,
    sequences,
    tasks,
    usage,
)
from tasks_app.api import audit as audit_operations
from tasks_app.api.auth import origin_of, principal_of
from tasks_app.api.base import CONTENT
from tasks_app.api.problems import MEDIA_TYPE, Kind, Refused, explain_errors
from tasks_app.history import audit
from tasks_app.models import Scope

PREFIX = "api/v1/"
_ABOUT = """Everything that the portal's pages do, for scripts. Send a personal token, created in the portal
under My settings, API tokens: `Authorization: Bearer cath_…`. Errors are problem details (RFC 9457). Lists
are paginated: follow `next` until it is null. Unknown fields and parameters are refused.
Times are ISO 8601 with a time zone. What you may not see is 404."""


class Api(NinjaAPI):
    """Names operations after their functions."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        return operation.view_func.__name__


def _with_audit_origin(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Record API, token and IP address with everything that an operation adds to the audit log."""

    @wraps(operation)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        with audit.acting_from(origin_of(principal_of(request))):
            return operation(request, *args, **kwargs)

    return wrapper


def _refusing_unknown_parameters(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse unknown query parameters, as in a body: a misspelled filter would match everything."""

    @wraps(operation)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        known = _parameters()[operation.__name__]
        if unknown := [name for name in request.GET if name not in known]:
            valid = f"valid are {', '.join(known)}" if known else "this operation takes none"
            errors = [{"where": f"query.{name}", "message": valid} for name in unknown]
            detail = f"There is no parameter “{unknown[0][:100]}”: {valid}."
            raise Refused(Kind.BAD_INPUT, detail, errors=errors)
        return operation(request, *args, **kwargs)

    return wrapper


api = Api(
    title="Cat Herder",
    version="1",
    description=_ABOUT,
    openapi_url=None,
    docs_url=None,
    urls_namespace="api",
)
api.add_decorator(_with_audit_origin)
api.add_decorator(_refusing_unknown_parameters)
for router in (
    accounts.router,
    projects.router,
    projects.files_router,
    projects.members_router,
    groups.router,
    tasks.router,
    reviews.router,
    sequences.router,
    questions.router,
    decisions.router,
    usage.router,
    notifications.router,
    publishing.router,
    audit_operations.router,
):
    api.add_router("", router)
explain_errors(api)


def patterns() -> list[URLPattern]:
    """Return the URLs of the operations. These authenticate: a redirect to a login is no use to a script."""
    found = [one for one in api.urls[0] if isinstance(one, URLPattern) and one.name != "api-root"]
    for pattern in found:
        pattern.callback.login_required = False  # type: ignore[attr-defined]
    return found


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document, with the media types of problems, logs and tables, which Ninja lacks."""
    whole: dict[str, Any] = dict(api.get_openapi_schema(path_prefix=PREFIX))
    scopes = {name: operation.auth_callbacks[0].scope for name, operation in _operations()}  # type: ignore[attr-defined]
    for operations in whole["paths"].values():
        for operation in operations.values():
            _correct(operation, scopes[operation["operationId"]])
    return whole


def _operations() -> Iterator[tuple[str, Operation]]:
    for mounted in api._get_bound_routers():
        for view in mounted.path_operations.values():
            for operation in view.operations:
                yield api.get_openapi_operation_id(operation), operation


@cache
def _parameters() -> dict[str, list[str]]:
    """Return the query parameters of each operation by its name."""
    return {
        name: [
            parameter
            for model in operation.models
            if model.__ninja_param_source__ == "query"
            for parameter in model.__ninja_flatten_map__
        ]
        for name, operation in _operations()
    }


def _correct(operation: dict[str, Any], scope: Scope) -> None:
    content = operation.pop(CONTENT, None)
    operation["x-scope"] = scope.value
    operation["summary"] = operation["summary"].capitalize()
    for status, response in operation["responses"].items():
        if status >= 400:
            response["content"] = {MEDIA_TYPE: response["content"]["application/json"]}
        elif content:
            response["content"] = content

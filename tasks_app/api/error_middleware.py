"""Turn every error below /api/ into problem details, also those raised outside of operations."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from tasks_app.api.limits import set_budget_headers
from tasks_app.api.problems import DOCS, MEDIA_TYPE, Kind, kind_of_status, problem

_KEPT_HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")


@sync_and_async_middleware
def problems_below_api(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Support both kinds of requests: a middleware of one kind costs every request a change of threads."""
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> Any:
            return _finish(request, await get_response(request))

        return asynchronous

    def synchronous(request: HttpRequest) -> Any:
        return _finish(request, get_response(request))

    return synchronous


def _finish(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if not request.path.startswith("/api/"):
        return response
    if response.status_code >= 400 and response.headers.get("Content-Type") != MEDIA_TYPE:
        kind = kind_of_status(response.status_code)
        details = {
            Kind.NOT_FOUND: f"There is no operation at {request.path}. {DOCS} lists all operations.",
            Kind.METHOD_NOT_ALLOWED: f"This URL does not accept {request.method}.",
        }
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        response = problem(kind, details.get(kind, kind.description.sentence), headers=headers)
    set_budget_headers(request, response)
    return response

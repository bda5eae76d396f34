"""The edge of the API: whatever goes wrong below /api/, also outside of any operation, is a problem."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from tasks_app.api.limits import set_budget_headers
from tasks_app.api.problems import DOCS, MEDIA_TYPE, Kind, of_status, problem

_KEPT = ("Allow", "Retry-After", "WWW-Authenticate")


@sync_and_async_middleware
def problems_below_api(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Both kinds, because a middleware of one kind costs every request a change of threads."""
    if iscoroutinefunction(get_response):

        async def among_others(request: HttpRequest) -> Any:
            return _told(request, await get_response(request))

        return among_others

    def alone(request: HttpRequest) -> Any:
        return _told(request, get_response(request))

    return alone


def _told(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if not request.path.startswith("/api/"):
        return response
    if response.status_code >= 400 and response.headers.get("Content-Type") != MEDIA_TYPE:
        response = _problem(request, response)
    set_budget_headers(request, response)
    return response


def _problem(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    kind = of_status(response.status_code)
    details = {
        Kind.NOT_FOUND: f"There is no operation at {request.path}; they stand in {DOCS}.",
        Kind.METHOD_NOT_ALLOWED: f"{request.method} is not possible here.",
    }
    headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
    return problem(kind, details.get(kind, kind.facts.sentence), headers=headers)

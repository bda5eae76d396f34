"""The page for a URL that only accepts form submissions, when somebody opens or reloads it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import sync_and_async_middleware


@sync_and_async_middleware
def method_not_allowed_page(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Replace Django's empty 405 by a page.

    Sync and async, because a middleware of one kind costs every request a thread switch.
    """
    if iscoroutinefunction(get_response):

        async def async_middleware(request: HttpRequest) -> Any:
            response = await get_response(request)
            if not _is_empty_405(request, response):
                return response
            return await sync_to_async(_render_405)(request, response)

        return async_middleware

    def middleware(request: HttpRequest) -> Any:
        response = get_response(request)
        return _render_405(request, response) if _is_empty_405(request, response) else response

    return middleware


def _is_empty_405(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Return whether this is Django's empty 405; the API has its own."""
    return response.status_code == 405 and not request.path.startswith("/api/")


def _render_405(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    page = render(request, "405.html", status=405)
    page["Allow"] = response.headers.get("Allow", "")
    return page

"""The page for an address that takes forms alone, when somebody opens it: reloaded, typed or kept."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.decorators import sync_and_async_middleware


@sync_and_async_middleware
def no_blank_page(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Both kinds, because a middleware of one kind costs every request a change of threads."""
    if iscoroutinefunction(get_response):

        async def among_others(request: HttpRequest) -> Any:
            response = await get_response(request)
            return await sync_to_async(_page)(request, response) if _is_blank(request, response) else response

        return among_others

    def alone(request: HttpRequest) -> Any:
        response = get_response(request)
        return _page(request, response) if _is_blank(request, response) else response

    return alone


def _is_blank(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Django's own answer to a method that a view does not take. The API has words of its own."""
    return response.status_code == 405 and not request.path.startswith("/api/")


def _page(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    page = render(request, "405.html", status=405)
    page["Allow"] = response.headers.get("Allow", "")
    return page

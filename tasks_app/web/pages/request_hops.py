"""Note when answers arrive and when cards are sent, for traces (O3)."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from tasks_app.history.noted_hops import RequestHops, hops_of_request, notes_hops


@sync_and_async_middleware
def request_hops(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Note the moments of each request; without an endpoint for traces it is left out."""
    if not notes_hops():
        raise MiddlewareNotUsed
    if iscoroutinefunction(get_response):

        async def async_middleware(request: HttpRequest) -> Any:
            with hops_of_request() as hops:
                return _noted(await get_response(request), hops)

        return async_middleware

    def middleware(request: HttpRequest) -> Any:
        with hops_of_request() as hops:
            return _noted(get_response(request), hops)

    return middleware


def _noted(response: HttpResponseBase, hops: RequestHops) -> HttpResponseBase:
    if response.status_code == 200:
        hops.note_cards()
    return response

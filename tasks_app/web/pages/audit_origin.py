"""Tells the audit room from where a request came."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from tasks_app.history.audit import Origin, acting_from
from tasks_app.models import Channel


def _origin(request: HttpRequest) -> Origin:
    return Origin(via=Channel.WEB, address=request.META.get("REMOTE_ADDR", "")[:60])


@sync_and_async_middleware
def told_to_the_audit(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Both kinds, because a middleware of one kind costs every request a change of threads."""
    if iscoroutinefunction(get_response):

        async def among_others(request: HttpRequest) -> Any:
            with acting_from(_origin(request)):
                return await get_response(request)

        return among_others

    def alone(request: HttpRequest) -> Any:
        with acting_from(_origin(request)):
            return get_response(request)

    return alone

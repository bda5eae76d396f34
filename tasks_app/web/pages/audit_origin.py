"""Tell the audit log where a request came from."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from tasks_app.history.audit import ActionOrigin, acting_from
from tasks_app.models import Channel


@sync_and_async_middleware
def audit_origin(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set the origin of audit entries; sync and async, to avoid a thread switch per request."""
    if iscoroutinefunction(get_response):

        async def async_middleware(request: HttpRequest) -> Any:
            with acting_from(_origin_of(request)):
                return await get_response(request)

        return async_middleware

    def middleware(request: HttpRequest) -> Any:
        with acting_from(_origin_of(request)):
            return get_response(request)

    return middleware


def _origin_of(request: HttpRequest) -> ActionOrigin:
    return ActionOrigin(via=Channel.WEB, ip_address=request.META.get("REMOTE_ADDR", "")[:60])

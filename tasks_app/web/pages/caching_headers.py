"""Pages and downloads are for who asked for them, now, and for no cache on the way."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin


class NotKept(MiddlewareMixin):
    """Forbids caches to keep what does not say otherwise: after a logout, Back must not show a task."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

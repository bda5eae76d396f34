"""Absolute URLs of pages, for messages and invitations."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def absolute_url(path: str) -> str:
    """Return the public URL of a page."""
    return f"{settings.ENVIRONMENT.address}{path}"


def absolute_url_for(request: HttpRequest, path: str) -> str:
    """Return the URL of a page for this request; without a configured URL, on the host of the request."""
    if settings.ENVIRONMENT.url:
        return absolute_url(path)
    return request.build_absolute_uri(path)

"""Times in the zone of the reader: of the browser, from the cookie of time_zone.js, or of the profile."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from tasks_app.notifications.timing import time_zone_names

COOKIE = "time_zone"
#: The API and its files are in UTC, whoever asks.
_ALWAYS_UTC = "/api/"

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def reader_time_zone(get_response: GetResponse) -> GetResponse:
    """Render pages in the time zone of the browser, else of the user's profile, else in UTC."""
    known = frozenset(time_zone_names())

    def respond(request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(_ALWAYS_UTC):
            return get_response(request)
        name = unquote(request.COOKIES.get(COOKIE, ""))
        if name not in known:
            name = getattr(request.user, "time_zone", "")  # a stranger has none
        if name not in known:
            return get_response(request)
        with timezone.override(ZoneInfo(name)):
            return get_response(request)

    return respond

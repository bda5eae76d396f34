"""Middleware: caching headers, stored drafts, the reader's time zone, text directions, the stack of views.

Names, options, commands and log lines of agents stand in many templates. With a character that changes the
direction of text, it looks like another one, so each page shows it by its number. In tags and fields it
stays: forms send back what they got.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from tasks_app.core.text import show_directions
from tasks_app.core.time_zones import time_zone_names


class NoStore(MiddlewareMixin):
    """Forbid caching unless a response says otherwise: after a logout, Back must not show a task."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response


#: The field in which `drafts.js` sends the mark of a draft, and the cookie that names the stored ones.
DRAFT_FIELD = STORED_DRAFTS = "stored_draft"
_MARK_LENGTH, _MOST_MARKS, _COOKIE_SECONDS = 32, 20, 24 * 3600
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def confirm_stored_drafts(get_response: GetResponse) -> GetResponse:
    """Name the draft of a form in a cookie once the form was accepted; the browser then removes the draft."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if request.method != "POST" or request.content_type not in _FORMS:
            return response
        if not request.user.is_authenticated or not _is_accepted(request, response):
            return response
        mark = request.POST.get(DRAFT_FIELD, "")
        if len(mark) == _MARK_LENGTH and mark.isalnum():
            earlier = request.COOKIES.get(STORED_DRAFTS, "").split(".")[1 - _MOST_MARKS :]
            response.set_cookie(
                STORED_DRAFTS, ".".join(filter(None, [*earlier, mark])),
                max_age=_COOKIE_SECONDS, secure=settings.SESSION_COOKIE_SECURE, samesite="Lax",
            )  # fmt: skip
        return response

    return respond


def _is_accepted(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Return whether the form was accepted: not refused, and not held up by a login or a password."""
    if not 300 <= response.status_code < 400:  # Django's admin shows a refused form with 200
        return response.status_code < 300 and not request.path.startswith("/admin/")
    if urlsplit(response.headers["Location"]).path.startswith("/login/"):
        return False
    # The messages of this request. Reading them as documented would count them as shown.
    queued = getattr(messages.get_messages(request), "_queued_messages", [])
    return not any(message.level >= messages.ERROR for message in queued)


_ZONE_COOKIE = "time_zone"
#: The API and its files are in UTC for everybody.
_ALWAYS_UTC = "/api/"


def reader_time_zone(get_response: GetResponse) -> GetResponse:
    """Render pages in the time zone of the browser, else of the user's profile, else in UTC."""
    known = frozenset(time_zone_names())

    def respond(request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(_ALWAYS_UTC):
            return get_response(request)
        name = unquote(request.COOKIES.get(_ZONE_COOKIE, ""))
        if name not in known:
            name = getattr(request.user, "time_zone", "")  # a stranger has none
        if name not in known:
            return get_response(request)
        with timezone.override(ZoneInfo(name)):
            return get_response(request)

    return respond


#: U+202A to U+202E and U+2066 to U+2069 in UTF-8.
_BYTES = re.compile(rb"\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
_KEPT = re.compile(r"<(textarea|script|style)\b[^>]*>.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def visible_directions(get_response: GetResponse) -> GetResponse:
    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        is_page = str(response.headers.get("Content-Type", "")).startswith("text/html")
        if is_page and isinstance(response, HttpResponse) and _BYTES.search(response.content):
            response.content = in_page(response.text).encode()
        return response

    return respond


def in_page(html: str) -> str:
    """Return the page with these characters shown, except in tags, fields and scripts."""
    shown, end = [], 0
    for kept in _KEPT.finditer(html):
        shown += [show_directions(html[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*shown, show_directions(html[end:])])


#: The page of the thing whose form an address takes.
_PAGE_OF_FORM = re.compile(r"/(?:questions|tasks|sequences|projects)/[0-9]+/")


def method_not_allowed_page(get_response: GetResponse) -> GetResponse:
    """Replace Django's empty 405 by a page; the API has its own.

    Whoever opens the address of a form again, as by a reload, gets the page on which the form stands.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if response.status_code != 405 or request.path.startswith("/api/"):
            return response
        if request.method == "GET" and (page_of_form := _PAGE_OF_FORM.match(request.path)):
            return redirect(page_of_form[0])
        page = render(request, "405.html", status=405)
        page["Allow"] = response.headers.get("Allow", "")
        return page

    return respond


#: Words of stack that a frame claims: its chunk has 1 MB, and room for the frames of 1,000 nested calls.
_STACK_WORDS = 70_000


def single_stack_chunk(get_response: GetResponse) -> GetResponse:
    """Keep the frames of a view in a single chunk of memory.

    CPython allocates frames in chunks of 16 kB and unmaps a chunk with its first frame. A loop whose calls
    cross the end of a chunk has memory mapped and cleared for each of them (python/cpython issue 142183, not
    fixed in 3.11 and 3.12). A list of 80 tasks spent half of its CPU time on that.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        return get_response(request)

    respond.__code__ = respond.__code__.replace(co_stacksize=_STACK_WORDS)
    return respond

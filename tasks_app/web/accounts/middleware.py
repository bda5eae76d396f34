"""The way to the login and back, and when a browser was last here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import resolve_url
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import url_has_allowed_host_and_scheme

from tasks_app.web.accounts.sessions import SessionStore


class ToTheLogin(LoginRequiredMiddleware):
    """Who sent a form after the login had ended comes back to the page with the form.

    Its own address may take forms alone, and what was sent is not sent again: so the login says that.
    """

    def handle_no_permission(self, request: HttpRequest, view_func: Callable[..., Any]) -> Any:
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        asked = QueryDict(mutable=True)
        asked.update({self.get_redirect_field_name(view_func): _page_before(request), "unsent": "1"})
        login = resolve_url(self.get_login_url(view_func))
        return HttpResponseRedirect(f"{login}?{asked.urlencode(safe='/')}")


def _page_before(request: HttpRequest) -> str:
    """The page of the portal from which a form came, as far as the browser says so."""
    before = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(before, {request.get_host()}, require_https=request.is_secure()):
        return "/"
    parts = urlsplit(before)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class Seen(MiddlewareMixin):
    """Costs nothing but once a minute for each browser; pages that ask for nobody cost nothing at all."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        session = getattr(request, "session", None)
        if isinstance(session, SessionStore) and session.accessed and session.session_key:
            session.mark_seen()
        return response

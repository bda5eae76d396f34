"""Redirects to the login page, and the time of a session's last request."""

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


class LoginRedirect(LoginRequiredMiddleware):
    """After the login, return to the page whose form was sent without a session.

    The form's own URL may only accept submissions, and the form is not sent again: so the login page says so.
    """

    def handle_no_permission(self, request: HttpRequest, view_func: Callable[..., Any]) -> Any:
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        query = QueryDict(mutable=True)
        query.update({self.get_redirect_field_name(view_func): _referring_page(request), "unsent": "1"})
        login = resolve_url(self.get_login_url(view_func))
        return HttpResponseRedirect(f"{login}?{query.urlencode(safe='/')}")


def _referring_page(request: HttpRequest) -> str:
    """Return the path of the portal's page that sent the form; `/` if the browser does not say."""
    referer = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(referer, {request.get_host()}, require_https=request.is_secure()):
        return "/"
    parts = urlsplit(referer)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class LastSeen(MiddlewareMixin):
    """Stores when a session was last used: at most once a minute, and only if the page reads the session."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        session = getattr(request, "session", None)
        if isinstance(session, SessionStore) and session.accessed and session.session_key:
            session.mark_seen()
        return response

"""Sessions in browsers: where each was opened, and their end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.sessions.backends import db
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import url_has_allowed_host_and_scheme

from tasks_app.models import BrowserSession
from tasks_app.models.account import hash_session_key, lasting_sessions
from tasks_app.services.accounts import lacks_second_factor

#: How often the time of the last request is stored.
SEEN_INTERVAL = timedelta(minutes=1)


class SessionStore(db.SessionStore):
    """Fills the columns of a row from the session's data, so that they follow the session to a new key."""

    _seen_at: datetime | None = None

    @classmethod
    def get_model_class(cls) -> Any:
        return BrowserSession

    def _get_session_from_db(self) -> Any:
        row = self.session_key and self._stored_session().first()
        if not row:
            self._session_key = self._seen_at = None
            return None
        self._seen_at = row.seen_at
        return row

    async def _aget_session_from_db(self) -> Any:
        row = self.session_key and await self._stored_session().afirst()
        if not row:
            self._session_key = None
            return None
        return row

    def _stored_session(self) -> Any:
        return lasting_sessions().filter(pk=hash_session_key(self.session_key or ""))

    def exists(self, session_key: str) -> bool:
        return bool(super().exists(hash_session_key(session_key)))

    async def aexists(self, session_key: str) -> bool:
        return bool(await super().aexists(hash_session_key(session_key)))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        return self._with_columns(data, super().create_model_instance(data))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        return self._with_columns(data, await super().acreate_model_instance(data))

    def _with_columns(self, data: dict[str, Any], row: Any) -> BrowserSession:
        row.session_key = hash_session_key(row.session_key)
        row.user_id = data.get(SESSION_KEY)
        row.address = data.get("address", "")
        row.browser = data.get("browser", "")
        if begun := data.get("begun"):
            row.begun_at = datetime.fromisoformat(begun)
        assert isinstance(row, BrowserSession)  # noqa: S101 (for the type checker)
        return row

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            self.model.objects.filter(pk=hash_session_key(key)).delete()

    async def adelete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            await self.model.objects.filter(pk=hash_session_key(key)).adelete()

    def mark_seen(self) -> None:
        """Store that the session was used now, at most once a minute."""
        if self._seen_at and timezone.now() - self._seen_at > SEEN_INTERVAL:
            self._stored_session().update(seen_at=timezone.now())


class LoginRedirect(LoginRequiredMiddleware):
    """Tell the login page what happened: a session ended, or a form was sent without one.

    The URL of a form may only accept submissions, and it is not sent again: the login leads to its page.
    """

    def handle_no_permission(self, request: HttpRequest, view_func: Callable[..., Any]) -> Any:
        query = QueryDict(mutable=True)
        if request.method not in ("GET", "HEAD"):
            query.update({self.get_redirect_field_name(view_func): _referring_page(request), "unsent": "1"})
        elif request.COOKIES.get(settings.SESSION_COOKIE_NAME):
            page = request.get_full_path()
            query.update({self.get_redirect_field_name(view_func): page, "ended": "session"})
        else:
            return super().handle_no_permission(request, view_func)
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
    """Stores when a session was last used: at most once a minute, and only if the page reads the session.

    An open page fetches its parts anew by itself whenever something happens. These requests do not count.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        session = getattr(request, "session", None)
        if request.method == "GET" and "HX-Request" in request.headers:
            return response
        if isinstance(session, SessionStore) and session.accessed and session.session_key:
            session.mark_seen()
        return response


#: Names of the pages that somebody who lacks the required second factor can still use.
_WITHOUT_SECOND_FACTOR = {
    "logout", "account_logout", "mfa_activate_totp", "account_reauthenticate", "login", "account_login",
}  # fmt: skip


class RequiredSecondFactor(MiddlewareMixin):
    """With `CATHERDER_SECOND_FACTOR=required`, leads users without one to the page that sets it up.

    API tokens are not affected: who made one has logged in.
    """

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        match = request.resolver_match
        if match is not None and match.url_name in _WITHOUT_SECOND_FACTOR:
            return None
        if not request.user.is_authenticated or not lacks_second_factor(request.user):
            return None
        if request.path.startswith("/api/"):  # its own authenticator refuses the session
            return None
        if request.method == "GET" and "HX-Request" not in request.headers:
            messages.info(request, "This portal requires a second factor. Set it up to continue.")
            return HttpResponseRedirect(reverse("mfa_activate_totp"))
        return render(request, "403.html", {"exception": "This portal requires a second factor."}, status=403)

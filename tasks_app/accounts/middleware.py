"""Notes when a browser was last here."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from tasks_app.accounts.sessions import SessionStore


class Seen(MiddlewareMixin):
    """Costs nothing but once a minute for each browser; pages that ask for nobody cost nothing at all."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        session = getattr(request, "session", None)
        if isinstance(session, SessionStore) and session.accessed and session.session_key:
            session.mark_seen()
        return response

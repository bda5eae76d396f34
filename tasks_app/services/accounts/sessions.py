"""List and end the sessions of a user."""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tasks_app.history.audit import record
from tasks_app.models import Action, BrowserSession, User
from tasks_app.models.browser_session import hash_session_key


def sessions_of(user: User) -> list[BrowserSession]:
    """Return the user's active sessions, the newest first."""
    lasting = user.sessions.filter(expire_date__gt=timezone.now()).select_related("user")
    return [session for session in lasting if session.is_valid]


def end_sessions(user: User, *, but: str | None = None) -> int:
    """End all sessions of the user except the one with the key `but`; return their number.

    Their pages ask for a login at the next click. Their sockets close before they receive anything more.
    """
    ended = user.sessions.exclude(pk=hash_session_key(but)) if but else user.sessions.all()
    return ended.delete()[0]


def end_session(user: User, pk: str) -> bool:
    """End one of the user's sessions. Return False if there is no such session."""
    return _log_out(user, user.sessions.filter(pk=pk)) > 0


def end_other_sessions(user: User, *, but: str | None) -> int:
    """End all other sessions of the user, and record it in the audit log; return their number."""
    return _log_out(user, user.sessions.exclude(pk=hash_session_key(but or "")))


def _log_out(user: User, sessions: QuerySet[BrowserSession]) -> int:
    with transaction.atomic():
        elsewhere = [
            f"{row.browser or 'a browser'} at {row.address}" for row in sessions.order_by("begun_at")
        ]
        if elsewhere:
            record(Action.LOGGED_OUT, by=user, elsewhere=elsewhere)
        return sessions.delete()[0]

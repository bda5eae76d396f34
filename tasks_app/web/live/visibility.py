"""Who sits at the other end of a socket, and what that person may see."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from tasks_app.models import User
from tasks_app.permissions import Principal, projects_visible_to


@dataclass(frozen=True)
class Access:
    """The projects that a person saw at a moment of the monotonic clock."""

    projects: frozenset[int]
    at: float
    user: int = 0


def look_up(session_key: str | None) -> Access | None:
    """What the owner of the session may see now; None for a stranger.

    Also None after a logout, a change of password, or when the user was deactivated.
    """
    at = time.monotonic()
    user = _owner(session_key)
    if user is None:
        return None
    visible = projects_visible_to(Principal.unrestricted(user))
    return Access(frozenset(visible.values_list("pk", flat=True)), at, user.pk)


def _owner(session_key: str | None) -> User | None:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return user if isinstance(user, User) else None

"""Which projects the user behind a socket may see."""

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
class Visibility:
    """The projects that a user could see when this was looked up, at a moment of the monotonic clock."""

    project_ids: frozenset[int]
    looked_up_at: float
    user_id: int = 0


def look_up_visibility(session_key: str | None) -> Visibility | None:
    """Return what the owner of the session may see now; None without a login.

    Also None after a logout, a change of password, or when the user was deactivated.
    """
    looked_up_at = time.monotonic()
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    if not isinstance(user, User):
        return None
    projects = projects_visible_to(Principal.unrestricted(user))
    return Visibility(frozenset(projects.values_list("pk", flat=True)), looked_up_at, user.pk)

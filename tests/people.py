"""Users as services want them."""

from __future__ import annotations

from tasks_app.models import User
from tasks_app.permissions import Principal


def acting(user: User) -> Principal:
    """The user in person: no API token acts for them, and none limits them."""
    return Principal.unrestricted(user)

"""Determine the user in whose name a command acts."""

from __future__ import annotations

import getpass

from django.conf import settings
from django.core.management.base import CommandParser

from tasks_app.core.errors import BadInput
from tasks_app.models import User
from tasks_app.permissions import Principal

_LISTED = 10


def add_user_argument(parser: CommandParser) -> None:
    parser.add_argument(
        "--as",
        dest="username",
        metavar="USERNAME",
        help="the user who does this; default: CATHERDER_USER, a user with your login name, or the only "
        "site admin",
    )


def acting_principal(username: str | None) -> Principal:
    """Return the acting user as an unrestricted principal."""
    return Principal.unrestricted(acting_user(username))


def acting_user(username: str | None) -> User:
    """Return the user of `--as`, CATHERDER_USER or the login name, else the only admin. Raises BadInput."""
    if name := username or settings.ENVIRONMENT.user:
        return _find_user(name, where="--as" if username else "CATHERDER_USER")
    users = User.objects.filter(is_active=True)
    own = users.filter(username=_login_name()).first()
    admins = users.filter(is_superuser=True)[:2]
    if own is None and len(admins) != 1:
        raise BadInput(f"Which user is this? Use --as USERNAME or set CATHERDER_USER. {_known_usernames()}")
    return own or admins[0]


def acting_user_or_none(username: str | None) -> User | None:
    """Return the acting user, or None if no users exist yet."""
    return acting_user(username) if username or User.objects.exists() else None


def _find_user(username: str, *, where: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise BadInput(f"There is no user “{username}”. {_known_usernames()}", where=where)
    if not user.is_active:
        raise BadInput(f"The account of “{username}” is deactivated.", where=where)
    return user


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run a user that has no name
        return ""


def _known_usernames() -> str:
    names = list(User.objects.filter(is_active=True).values_list("username", flat=True)[: _LISTED + 1])
    if not names:
        return "There are no users yet: run `make up` once, or `manage.py createsuperuser`."
    more = ", …" if len(names) > _LISTED else ""
    return f"Known: {', '.join(names[:_LISTED])}{more}."

"""Who sits at the terminal: everything that is done there is done by a named person."""

from __future__ import annotations

import getpass

from django.conf import settings
from django.core.management.base import CommandParser

from tasks_app.core.errors import BadInput
from tasks_app.models import User
from tasks_app.permissions import Principal

_LISTED = 10


def add_person_argument(parser: CommandParser) -> None:
    parser.add_argument(
        "--as",
        dest="username",
        metavar="USERNAME",
        help="whose name this is done in; else CATHERDER_USER, a user named like your login, or the "
        "only site admin",
    )


def acting_principal(username: str | None) -> Principal:
    """The user who acts in this terminal, as `acting_user` finds them."""
    return Principal.unrestricted(acting_user(username))


def acting_user(username: str | None) -> User:
    """The user meant by `--as`, else by CATHERDER_USER, else by the login name, else the only admin.

    Raises BadInput that says what to do.
    """
    if named := username or settings.ENVIRONMENT.user:
        return _named(named, where="--as" if username else "CATHERDER_USER")
    people = User.objects.filter(is_active=True)
    own = people.filter(username=_login_name()).first()
    admins = people.filter(is_superuser=True)[:2]
    if own is None and len(admins) != 1:
        raise BadInput(f"Who are you here? Say --as USERNAME, or set CATHERDER_USER. {_known()}")
    return own or admins[0]


def acting_user_if_any(username: str | None) -> User | None:
    """For what may be done before anybody has a login."""
    return acting_user(username) if username or User.objects.exists() else None


def _named(username: str, *, where: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise BadInput(f"There is no user “{username}”. {_known()}", where=where)
    if not user.is_active:
        raise BadInput(f"The login of “{username}” is switched off.", where=where)
    return user


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run a user that has no name
        return ""


def _known() -> str:
    names = list(User.objects.filter(is_active=True).values_list("username", flat=True)[: _LISTED + 1])
    if not names:
        return "Nobody has a login yet: run `make up` once, or `manage.py createsuperuser`."
    more = ", …" if len(names) > _LISTED else ""
    return f"Known: {', '.join(names[:_LISTED])}{more}."

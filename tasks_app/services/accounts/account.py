"""Changes of one's own account: name, theme, time zone, e-mail address, linked logins."""

from __future__ import annotations

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Theme, User


def change_name(user: User, name: str) -> None:
    """Set the displayed name; "" displays the user name."""
    before = user.shown_name
    user.first_name, user.last_name = name, ""
    with transaction.atomic():
        user.save(update_fields=["first_name", "last_name"])
        _record_change(user, name=[before, user.shown_name])


def change_theme(user: User, theme: Theme) -> None:
    """Set the theme of pages. A personal preference, so the audit log does not record it."""
    user.theme = theme
    user.save(update_fields=["theme"])


def change_time_zone(user: User, name: str) -> None:
    """Set the user's zone; "" is UTC. Not recorded either.

    It is for quiet hours and digests, and for times on pages if the browser does not say its own.
    """
    user.time_zone = name
    user.save(update_fields=["time_zone"])


def dismiss_first_steps(user: User) -> None:
    """Hide the checklist of a new installation from this user."""
    user.first_steps_dismissed = True
    user.save(update_fields=["first_steps_dismissed"])


def change_email(user: User, email: str) -> None:
    """Set an unconfirmed address, in an installation without e-mail; "" removes it."""
    before = user.email
    user.email = email
    with transaction.atomic():
        user.save(update_fields=["email"])
        EmailAddress.objects.filter(user=user).delete()
        if email:
            EmailAddress.objects.create(user=user, email=email, primary=True, verified=False)
        _record_change(user, email=[before, email])


def unlink_login(account: SocialAccount, *, by: User) -> None:
    """Unlink a login of another provider. Raises BadInput if it is the user's only way to log in."""
    others = SocialAccount.objects.filter(user=by).exclude(pk=account.pk)
    if not by.has_usable_password() and not others.exists():
        raise BadInput("This is your only way to log in. Set a password first.")
    with transaction.atomic():
        _record_change(by, unlinked=[account.provider, account.uid])
        account.delete()


def _record_change(user: User, **changed: list[str]) -> None:
    record(Action.ACCOUNT_CHANGED, by=user, subject=user.get_username(), changed=changed)

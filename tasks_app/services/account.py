"""One's own account: name, look, e-mail address, logins that are linked with it."""

from __future__ import annotations

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from tasks_app.core.errors import BadInput
from tasks_app.history.audit import record
from tasks_app.models import Action, Theme, User


def change_name(user: User, name: str) -> None:
    """Set the name that others see; "" shows the login instead."""
    before = user.shown_name
    user.first_name, user.last_name = name, ""
    with transaction.atomic():
        user.save(update_fields=["first_name", "last_name"])
        _record(user, name=[before, user.shown_name])


def change_theme(user: User, theme: Theme) -> None:
    """How pages look is nobody else's business: no entry in the audit room."""
    user.theme = theme
    user.save(update_fields=["theme"])


def change_email(user: User, email: str) -> None:
    """Set an address that nobody has confirmed, where no e-mail is sent; "" takes it away."""
    before = user.email
    user.email = email
    with transaction.atomic():
        user.save(update_fields=["email"])
        EmailAddress.objects.filter(user=user).delete()
        if email:
            EmailAddress.objects.create(user=user, email=email, primary=True, verified=False)
        _record(user, email=[before, email])


def unlink_login(account: SocialAccount, *, by: User) -> None:
    """Take away a login through somebody else. Raises BadInput if nothing to log in with would be left."""
    others = SocialAccount.objects.filter(user=by).exclude(pk=account.pk)
    if not by.has_usable_password() and not others.exists():
        raise BadInput("This is your only way to log in. Set a password first.")
    with transaction.atomic():
        _record(by, unlinked=[account.provider, account.uid])
        account.delete()


def _record(user: User, **changed: list[str]) -> None:
    record(Action.ACCOUNT_CHANGED, by=user, subject=user.get_username(), changed=changed)

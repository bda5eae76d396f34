"""The forms of the login and of passwords."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ChangePasswordForm as AllauthChangePasswordForm
from allauth.account.forms import LoginForm as AllauthLoginForm
from allauth.account.forms import ResetPasswordKeyForm as AllauthResetPasswordKeyForm
from allauth.account.forms import SetPasswordForm as AllauthSetPasswordForm
from allauth.mfa import app_settings as mfa
from allauth.mfa.base.forms import AuthenticateForm as AllauthAuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as AllauthReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm as AllauthActivateTOTPForm
from allauth.mfa.totp.internal.auth import TOTP
from django.core.cache import cache

from tasks_app.models import User


class LoginForm(AllauthLoginForm):  # type: ignore[misc]
    """Name or e-mail address, in a field that password managers know."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"] = self.fields.pop("login")
        self.fields["username"].max_length = 254

    def clean(self) -> Any:
        self.cleaned_data["login"] = self.cleaned_data.get("username", "").strip()
        return super().clean()


class _Labelled:
    """Without allauth's placeholders, which say the label again in other words."""

    fields: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for one in self.fields.values():
            one.widget.attrs.pop("placeholder", None)


class ChangePasswordForm(_Labelled, AllauthChangePasswordForm):  # type: ignore[misc]
    """The present password and a new one."""


class SetPasswordForm(_Labelled, AllauthSetPasswordForm):  # type: ignore[misc]
    """A first password, of somebody who came another way."""


class ResetPasswordKeyForm(_Labelled, AllauthResetPasswordKeyForm):  # type: ignore[misc]
    """A new password, by the link of a mail."""


def mark_code_used(user: User, code: str) -> None:
    """Let a code of the second factor count only once, for as long as it would count.

    allauth marks the codes of a login, not the one that switched the second factor on; and for one period,
    while with a tolerance of one a code counts for three.
    """
    totp = TOTP(Authenticator(user=user, type=Authenticator.Type.TOTP))
    cache.set(totp._get_used_cache_key(code), "y", mfa.TOTP_PERIOD * (2 * mfa.TOTP_TOLERANCE + 1))


class _CodeOnce:
    """A form whose code is used up once it was right."""

    user: User

    def clean_code(self) -> str:
        code: str = super().clean_code()  # type: ignore[misc]
        mark_code_used(self.user, code)
        return code


class ActivateTOTPForm(_CodeOnce, AllauthActivateTOTPForm):  # type: ignore[misc]
    """The first code, which shows that the app has the secret."""


class AuthenticateForm(_CodeOnce, AllauthAuthenticateForm):  # type: ignore[misc]
    """A code after the password."""


class ReauthenticateForm(_CodeOnce, AllauthReauthenticateForm):  # type: ignore[misc]
    """A code before something that matters."""

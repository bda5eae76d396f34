"""The forms for login, passwords and second factor."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ChangePasswordForm as AllauthChangePasswordForm
from allauth.account.forms import LoginForm as AllauthLoginForm
from allauth.account.forms import ResetPasswordKeyForm as AllauthResetPasswordKeyForm
from allauth.account.forms import SetPasswordForm as AllauthSetPasswordForm
from allauth.mfa import app_settings as mfa
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm as AllauthAuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as AllauthReauthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm as AllauthActivateTOTPForm
from django.core.cache import cache

from tasks_app.models import User


class LoginForm(AllauthLoginForm):  # type: ignore[misc]
    """Accepts a user name or e-mail address, in a field that password managers recognise."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"] = self.fields.pop("login")
        self.fields["username"].max_length = 254

    def clean(self) -> Any:
        self.cleaned_data["login"] = self.cleaned_data.get("username", "").strip()
        return super().clean()


class _WithoutPlaceholders:
    """Removes allauth's placeholders, which repeat the labels."""

    fields: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for one in self.fields.values():
            one.widget.attrs.pop("placeholder", None)


class ChangePasswordForm(_WithoutPlaceholders, AllauthChangePasswordForm):  # type: ignore[misc]
    """The current password and a new one."""


class SetPasswordForm(_WithoutPlaceholders, AllauthSetPasswordForm):  # type: ignore[misc]
    """A first password for a user who logs in with a provider."""


class ResetPasswordKeyForm(_WithoutPlaceholders, AllauthResetPasswordKeyForm):  # type: ignore[misc]
    """A new password, after following the link in an e-mail."""


class _SingleUseCode:
    """A form that accepts a code only once, for as long as it would be valid.

    allauth refuses codes of a login, not the one that switched on the second factor; and for one period,
    while with a tolerance of one a code is valid for three.
    """

    user: User

    def clean_code(self) -> str:
        code: str = super().clean_code()  # type: ignore[misc]
        digits = "".join(filter(str.isalnum, code))
        valid_for = mfa.TOTP_PERIOD * (2 * mfa.TOTP_TOLERANCE + 1)
        if not cache.add(f"used code of {self.user.pk}: {digits}".replace(" ", "-"), True, valid_for):
            raise get_adapter().validation_error("incorrect_code")
        return code


class ActivateTOTPForm(_SingleUseCode, AllauthActivateTOTPForm):  # type: ignore[misc]
    """The first code, which proves that the app has the secret."""


class AuthenticateForm(_SingleUseCode, AllauthAuthenticateForm):  # type: ignore[misc]
    """The code at login, after the password."""


class ReauthenticateForm(_SingleUseCode, AllauthReauthenticateForm):  # type: ignore[misc]
    """The code before a change of the account."""

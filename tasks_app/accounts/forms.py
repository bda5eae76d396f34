"""The forms of the login and of passwords."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ChangePasswordForm as AllauthChangePasswordForm
from allauth.account.forms import LoginForm as AllauthLoginForm
from allauth.account.forms import ResetPasswordKeyForm as AllauthResetPasswordKeyForm
from allauth.account.forms import SetPasswordForm as AllauthSetPasswordForm


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

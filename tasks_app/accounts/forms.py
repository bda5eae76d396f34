"""The form of the login."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import LoginForm as AllauthLoginForm


class LoginForm(AllauthLoginForm):  # type: ignore[misc]
    """Name or e-mail address, in a field that password managers know."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"] = self.fields.pop("login")
        self.fields["username"].max_length = 254

    def clean(self) -> Any:
        self.cleaned_data["login"] = self.cleaned_data.get("username", "").strip()
        return super().clean()

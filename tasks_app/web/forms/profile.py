"""The form of the user's profile."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.userkit import filter_users_by_email
from django import forms

from tasks_app.models import Theme, User
from tasks_app.notifications.timing import time_zone_names


class ProfileForm(forms.Form):
    name = forms.CharField(required=False, max_length=150, widget=forms.TextInput({"autocomplete": "name"}))
    email = forms.EmailField(
        required=False, max_length=254, widget=forms.EmailInput({"autocomplete": "email"})
    )
    theme = forms.ChoiceField(choices=Theme, widget=forms.RadioSelect)

    time_zone = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        given = {"name": user.get_full_name(), "email": user.email, "theme": user.theme}
        given["time_zone"] = user.time_zone
        kwargs["initial"] = given
        super().__init__(*args, **kwargs)
        self._user = user
        zones = [("", "UTC"), *((name, name) for name in time_zone_names() if name != "UTC")]
        self.fields["time_zone"].choices = zones  # type: ignore[attr-defined]
        self.fields["name"].widget.attrs["placeholder"] = user.get_username()

    def clean_name(self) -> str:
        return " ".join(self.cleaned_data["name"].split())

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"].lower()
        if email and any(user.pk != self._user.pk for user in filter_users_by_email(email)):
            raise forms.ValidationError("Another user has this e-mail address.")
        return email

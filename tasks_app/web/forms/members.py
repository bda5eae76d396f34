"""The forms of members and invitations."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.userkit import filter_users_by_username
from allauth.account.models import EmailAddress
from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from tasks_app.models import Invitation, Role, User
from tasks_app.services.projects.invitations import address_is_taken

ROLES = [(Role.VIEWER.value, "viewer"), (Role.MEMBER.value, "member"), (Role.MAINTAINER.value, "maintainer")]


class NewMemberForm(forms.Form):
    """A user name or e-mail address: existing users become members, other addresses are invited."""

    user = forms.CharField(
        max_length=254, widget=forms.TextInput({"autocomplete": "off", "autocapitalize": "none"})
    )
    role = forms.ChoiceField(choices=ROLES, initial=Role.MEMBER)

    def clean_user(self) -> str:
        """Set `existing_user`; None for an address to invite."""
        given: str = self.cleaned_data["user"]
        # A user name may look like another user's address, and must not get that user's invitation.
        if _is_email(given):
            # Only a confirmed address: anybody can claim one where no e-mail is sent.
            confirmed = EmailAddress.objects.filter(email=given.lower(), verified=True)
            address = confirmed.select_related("user").first()
            self.existing_user: User | None = address.user if address else None
        else:
            self.existing_user = filter_users_by_username(given).first()
            if self.existing_user is None:
                raise ValidationError(
                    "There is no user with this name. Enter an e-mail address to invite somebody."
                )
        return given


def _is_email(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=ROLES)


class SignUpForm(forms.Form):
    """The account of somebody who was invited and has none yet."""

    username = forms.CharField(
        max_length=150,
        validators=[User.username_validator],
        widget=forms.TextInput({"autocomplete": "username", "autocapitalize": "none"}),
    )
    name = forms.CharField(required=False, max_length=150, widget=forms.TextInput({"autocomplete": "name"}))
    password = forms.CharField(
        max_length=4096,
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}, render_value=False),
    )

    def __init__(self, *args: Any, invitation: Invitation, **kwargs: Any) -> None:
        kwargs["initial"] = {"username": invitation.email.split("@")[0]}
        super().__init__(*args, **kwargs)
        self._invitation = invitation

    def clean_username(self) -> str:
        username: str = self.cleaned_data["username"]
        if filter_users_by_username(username).exists():
            raise ValidationError("This user name is taken. Choose another.")
        if _is_email(username) and username.lower() != self._invitation.email:
            raise ValidationError("Your user name must not be another e-mail address than your own.")
        return username

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if address_is_taken(self._invitation):
            raise ValidationError("There is already an account with this e-mail address. Log in instead.")
        if "password" in given:
            self._validate_password(given)
        return given

    def _validate_password(self, given: dict[str, Any]) -> None:
        user = User(username=given.get("username", ""), first_name=given.get("name", ""))
        user.email = self._invitation.email
        try:
            validate_password(given["password"], user)
        except ValidationError as error:
            self.add_error("password", error)

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
from tasks_app.services.invitations import address_is_taken

ROLES = [(Role.VIEWER.value, "viewer"), (Role.MEMBER.value, "member"), (Role.MAINTAINER.value, "maintainer")]


class NewMemberForm(forms.Form):
    """One field for both: who has a login becomes a member at once, any other address is invited."""

    who = forms.CharField(
        max_length=254, widget=forms.TextInput({"autocomplete": "off", "autocapitalize": "none"})
    )
    role = forms.ChoiceField(choices=ROLES, initial=Role.MEMBER)

    def clean_who(self) -> str:
        who: str = self.cleaned_data["who"]
        # A login may look like somebody else's address, and must not get what was meant for that person.
        is_address = _is_address(who)
        self.user = _with_address(who) if is_address else _with_login(who)
        if self.user is None and not is_address:
            raise ValidationError(
                "There is no user with this name. Enter an e-mail address to invite somebody."
            )
        return who


def _with_login(name: str) -> User | None:
    found = filter_users_by_username(name).first()
    return found if isinstance(found, User) else None


def _with_address(email: str) -> User | None:
    """Only an address that was confirmed: anybody can claim one where no e-mail is sent."""
    confirmed = EmailAddress.objects.filter(email=email.lower(), verified=True).select_related("user").first()
    return confirmed.user if confirmed else None


def _is_address(who: str) -> bool:
    try:
        validate_email(who)
    except ValidationError:
        return False
    return True


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=ROLES)


class NewcomerForm(forms.Form):
    """Who follows an invitation and has no login yet."""

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
        if _is_address(username) and username.lower() != self._invitation.email:
            raise ValidationError("Your user name must not be another e-mail address than your own.")
        return username

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if address_is_taken(self._invitation):
            raise ValidationError("There is already an account with this e-mail address. Log in instead.")
        if "password" in given:
            self._check(given)
        return given

    def _check(self, given: dict[str, Any]) -> None:
        person = User(username=given.get("username", ""), first_name=given.get("name", ""))
        person.email = self._invitation.email
        try:
            validate_password(given["password"], person)
        except ValidationError as error:
            self.add_error("password", error)

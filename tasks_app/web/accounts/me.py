"""A person's own pages: profile, security and API tokens."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.utils import filter_users_by_email
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from tasks_app import permissions
from tasks_app.core.amounts import counted
from tasks_app.core.errors import BadInput
from tasks_app.core.time_zones import time_zone_names
from tasks_app.models import Project, Scope, Theme, User
from tasks_app.models.account import hash_session_key
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.services.accounts import (
    change_email,
    change_name,
    change_theme,
    change_time_zone,
    end_other_sessions,
    end_session,
    make_token,
    revoke_token,
    sessions_of,
    unlink_login,
)
from tasks_app.services.commands import mcp_command
from tasks_app.web.access import (
    ProjectsField,
    current_user,
    principal_of,
    require_reauthentication,
    require_recent_login,
)
from tasks_app.web.accounts.providers import login_providers


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


NEVER = "never"
LIFETIMES = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "one year", NEVER: "never"}


class NewTokenForm(forms.Form):
    """The name, scopes, projects and lifetime of a token."""

    name = forms.CharField(
        max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "nightly build"})
    )
    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        initial=[Scope.READ],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Select at least one scope."},
    )
    expires = forms.ChoiceField(choices=list(LIFETIMES.items()), initial="90")
    projects = ProjectsField(
        Project.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"invalid_choice": "There is no such project, or you cannot see it."},
    )

    def __init__(self, *args: Any, principal: Principal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["projects"]
        assert isinstance(field, forms.ModelMultipleChoiceField)  # noqa: S101 (for the type checker)
        field.queryset = projects_visible_to(principal)

    @property
    def chosen_scopes(self) -> list[Scope]:
        return [Scope(value) for value in self.cleaned_data["scopes"]]

    @property
    def chosen_projects(self) -> Collection[Project] | None:
        """The selected projects; None for all projects, including future ones."""
        return list(self.cleaned_data["projects"]) or None

    @property
    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["expires"]
        if days == NEVER:
            return None
        return timezone.now() + timedelta(days=int(days))


@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    user = current_user(request)
    form = ProfileForm(request.POST if request.method == "POST" else None, user=user)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        if given["email"] != user.email:  # first: this may ask for the password and repeat the request
            _new_address(request, user, given["email"])
        if given["name"] != user.get_full_name():
            change_name(user, given["name"])
        if given["theme"] != user.theme:
            change_theme(user, Theme(given["theme"]))
        if given["time_zone"] != user.time_zone:
            change_time_zone(user, given["time_zone"])
        messages.success(request, "Saved.")
        return redirect("me")
    context = {
        "form": form,
        "awaited": EmailAddress.objects.get_new(user),
        "sends_email": settings.SENDS_EMAIL,
    }
    return render(request, "accounts/profile.html", context, status=400 if form.errors else 200)


def _new_address(request: HttpRequest, user: User, email: str) -> None:
    require_reauthentication(request)
    if email and settings.SENDS_EMAIL:
        EmailAddress.objects.add_new_email(request, user, email)
        messages.info(request, f"A link was sent to {email}. Follow it to confirm your new address.")
    else:
        change_email(user, email)


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Switch the theme and return to the page."""
    chosen = request.POST.get("theme")
    if chosen in Theme.values:
        change_theme(current_user(request), Theme(chosen))
    back = request.POST.get("back", "")
    # A word without a slash is the name of a page to `redirect`, or an error.
    here = back.startswith("/") and url_has_allowed_host_and_scheme(back, {request.get_host()})
    return redirect(back if here else "tasks")


@require_GET
def security(request: HttpRequest) -> HttpResponse:
    user = current_user(request)
    linked = list(SocialAccount.objects.filter(user=user).order_by("pk"))
    names = {one.key: one.name for one in login_providers()}
    rows = []
    for account in linked:
        said = account.extra_data.get("userinfo") or account.extra_data
        name_there = str(said.get("email") or said.get("login") or account.uid)
        rows.append((account, names.get(account.provider, account.provider), name_there))
    codes = Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES).first()
    context = {
        "here": hash_session_key(request.session.session_key or ""),
        "sessions": sessions_of(user),
        "second_factor": Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).first(),
        "codes": len(codes.wrap().get_unused_codes()) if codes else 0,
        "linked": rows,
        "to_link": [
            one for one in login_providers() if one.key not in {account.provider for account in linked}
        ],
    }
    return render(request, "accounts/security.html", context)


@require_POST
def session_end(request: HttpRequest, session: str) -> HttpResponse:
    if end_session(current_user(request), session):
        messages.success(request, "Session ended.")
    return redirect("me_security")


@require_POST
def sessions_end(request: HttpRequest) -> HttpResponse:
    ended = end_other_sessions(current_user(request), but=request.session.session_key)
    messages.success(request, f"Logged out everywhere else: {counted(ended, 'session')}.")
    return redirect("me_security")


@require_POST
def unlink(request: HttpRequest, account_id: int) -> HttpResponse:
    user = current_user(request)
    account = get_object_or_404(SocialAccount, user=user, pk=account_id)
    try:
        unlink_login(account, by=user)
        messages.success(request, "The login is no longer linked to your account.")
    except BadInput as error:
        messages.error(request, str(error))
    return redirect("me_security")


@require_http_methods(["GET", "POST"])
def me_tokens(request: HttpRequest) -> HttpResponse:
    """List and create tokens. The secret is only in this response, not stored for a reload.

    A token outlives a login that was left open and a change of password, so it takes the password.
    """
    principal = principal_of(request)
    if request.method == "GET":
        return _render_page(request, NewTokenForm(principal=principal))
    require_recent_login(request)
    form = NewTokenForm(request.POST, principal=principal)
    if not form.is_valid():
        return _render_page(request, form, status=400)
    try:
        made = make_token(
            form.cleaned_data["name"],
            form.chosen_scopes,
            by=principal,
            projects=form.chosen_projects,
            expires_at=form.expires_at,
        )
    except BadInput as error:
        form.add_error(error.where if error.where in form.fields else None, error.message)
        return _render_page(request, form, status=400)
    return _render_page(request, NewTokenForm(principal=principal), made=made)


@require_POST
def me_token_revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    token = permissions.token_or_404(principal_of(request), token_id)
    revoke_token(token, by=principal_of(request))
    messages.success(request, f"Token “{token.name}” revoked.")
    return redirect("me_tokens")


def _render_page(request: HttpRequest, form: NewTokenForm, *, status: int = 200, **more: Any) -> HttpResponse:
    tokens = (
        permissions.tokens_visible_to(principal_of(request))
        .filter(revoked_at=None)
        .prefetch_related("projects")
    )
    portal = request.build_absolute_uri("/").rstrip("/")
    secret = more["made"].secret if "made" in more else ""
    context = {
        "form": form, "tokens": tokens, "portal": portal, "mcp_command": mcp_command(portal, secret), **more,
    }  # fmt: skip
    return render(request, "accounts/tokens.html", context, status=status)

"""The login pages that differ from allauth's, and their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import requests
from allauth.account import views as account
from allauth.account.forms import ChangePasswordForm as AllauthChangePasswordForm
from allauth.account.forms import LoginForm as AllauthLoginForm
from allauth.account.forms import ResetPasswordKeyForm as AllauthResetPasswordKeyForm
from allauth.account.forms import SetPasswordForm as AllauthSetPasswordForm
from allauth.mfa import app_settings as mfa
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm as AllauthAuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as AllauthReauthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm as AllauthActivateTOTPForm
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.github import views as github
from allauth.socialaccount.providers.openid_connect import views as openid
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_GET, require_POST

from tasks_app.models import User
from tasks_app.web.accounts.adapter import TOO_MANY, TOO_MANY_ANYWHERE
from tasks_app.web.accounts.providers import login_providers


class Login(account.LoginView):  # type: ignore[misc]
    template_name = "accounts/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        asked = self.request.GET
        return {
            **context,
            "providers": login_providers(),
            "unsent": "unsent" in asked,
            "ended": asked.get("ended"),
        }

    def form_invalid(self, form: LoginForm) -> HttpResponse:
        page: HttpResponse = super().form_invalid(form)
        if {TOO_MANY, TOO_MANY_ANYWHERE} & set(form.non_field_errors()):
            page.status_code = 429
        return page


@method_decorator(login_not_required, name="dispatch")
class PasswordReset(account.PasswordResetView):  # type: ignore[misc]
    """Without e-mail, the page says so and whom to ask."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not settings.SENDS_EMAIL:
            return render(request, "account/password_reset_by_hand.html")
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return response


class PasswordChange(account.PasswordChangeView):  # type: ignore[misc]
    template_name = "accounts/password.html"


class PasswordSet(account.PasswordSetView):  # type: ignore[misc]
    template_name = "accounts/password.html"


class SecondFactorOn(ActivateTOTPView):  # type: ignore[misc]
    template_name = "accounts/second_factor.html"


class SecondFactorOff(DeactivateTOTPView):  # type: ignore[misc]
    template_name = "accounts/second_factor_off.html"
    success_url = reverse_lazy("me_security")


@require_POST
@login_not_required
def go_to_provider(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Send the user to the provider's login.

    With a page that redirects: a redirect response would violate the `form-action` of the security policy.
    """
    response = _call_provider(provider_id, request, openid.login, github.oauth2_login)
    if response.status_code != 302 or "://" not in response["Location"]:
        return response
    name = next((provider.name for provider in login_providers() if provider.key == provider_id), "")
    return render(request, "account/go_to_provider.html", {"url": response["Location"], "name": name})


@require_GET
@login_not_required
def back_from_provider(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _call_provider(provider_id, request, openid.callback, github.oauth2_callback)


def _call_provider(
    provider_id: str,
    request: HttpRequest,
    openid_view: Callable[..., Any],
    github_view: Callable[..., Any],
) -> HttpResponse:
    """Show an error page for anything that is wrong with the provider's response."""
    if provider_id not in {provider.key for provider in login_providers()}:
        raise Http404
    try:
        response: HttpResponse = (
            github_view(request) if provider_id == "github" else openid_view(request, provider_id)
        )
        return response
    except (requests.RequestException, SocialApp.DoesNotExist, KeyError, ValueError, TypeError):
        return render(request, "socialaccount/authentication_error.html", status=502)


@require_POST
@login_not_required
def logout(request: HttpRequest) -> HttpResponse:
    account.logout(request)
    return redirect(f"{resolve_url(settings.LOGOUT_REDIRECT_URL)}?ended=logout")


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

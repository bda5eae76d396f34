"""URLs of the login pages. Only some of allauth's pages are mounted.

allauth looks up its pages by its own names; where the portal has another name, both lead to the same URL.
"""

from __future__ import annotations

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as codes
from allauth.socialaccount import views as social
from django.urls import URLPattern, path, register_converter
from django.urls.converters import SlugConverter
from django.views.generic import RedirectView

from tasks_app.web.accounts import pages


class ResetUser(SlugConverter):
    regex = "[0-9A-Za-z]{1,13}"


register_converter(ResetUser, "reset_user")

_redirect_to_security = RedirectView.as_view(pattern_name="me_security")

urlpatterns: list[URLPattern] = [
    path("login/", pages.Login.as_view(), name="login"),
    path("login/", pages.Login.as_view(), name="account_login"),
    path("logout/", pages.logout, name="logout"),
    path("logout/", pages.logout, name="account_logout"),
    path("login/second-factor/", mfa.authenticate, name="mfa_authenticate"),
    path("login/again/", account.reauthenticate, name="account_reauthenticate"),
    path("login/again/second-factor/", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("login/switched-off/", account.account_inactive, name="account_inactive"),
    path("login/cancelled/", social.login_cancelled, name="socialaccount_login_cancelled"),
    path("login/through/<slug:provider_id>/", pages.go_to_provider, name="login_through"),
    path(
        "login/through/github/back/",
        pages.back_from_provider,
        {"provider_id": "github"},
        name="github_callback",
    ),
    path("login/through/<slug:provider_id>/back/", pages.back_from_provider, name="openid_connect_callback"),
    path("password/reset/", pages.PasswordReset.as_view(), name="account_reset_password"),
    path("password/reset/sent/", account.password_reset_done, name="account_reset_password_done"),
    path(
        "password/reset/done/",
        account.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    path(
        "password/reset/<reset_user:uidb36>-<str:key>/",
        account.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("email/confirm/<str:key>/", account.confirm_email, name="account_confirm_email"),
    path("me/password/", pages.PasswordChange.as_view(), name="account_change_password"),
    path("me/password/first/", pages.PasswordSet.as_view(), name="account_set_password"),
    path("me/second-factor/", pages.SecondFactorOn.as_view(), name="mfa_activate_totp"),
    path("me/second-factor/off/", pages.SecondFactorOff.as_view(), name="mfa_deactivate_totp"),
    path("me/second-factor/codes/", codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("me/second-factor/codes/new/", codes.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("me/second-factor/codes.txt", codes.download_recovery_codes, name="mfa_download_recovery_codes"),
    # Names that allauth redirects to; the portal has another page.
    path("me/second-factor/all/", _redirect_to_security, name="mfa_index"),
    path("me/linked/", _redirect_to_security, name="socialaccount_connections"),
]

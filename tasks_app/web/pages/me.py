"""Personal settings: profile, theme and account security."""

from __future__ import annotations

from allauth.account.internal.flows.reauthentication import raise_if_reauthentication_required
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from tasks_app.core.errors import BadInput
from tasks_app.models import Theme, User
from tasks_app.models.browser_session import hash_session_key
from tasks_app.services.accounts.account import (
    change_email,
    change_name,
    change_theme,
    change_time_zone,
    unlink_login,
)
from tasks_app.services.accounts.sessions import end_other_sessions, end_session, sessions_of
from tasks_app.web.accounts.providers import login_providers
from tasks_app.web.forms.profile import ProfileForm
from tasks_app.web.pages.access import current_user


@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    user = current_user(request)
    form = ProfileForm(request.POST if request.method == "POST" else None, user=user)
    if request.method == "POST" and form.is_valid():
        _save(request, user, form)
        return redirect("me")
    context = {
        "form": form,
        "awaited": EmailAddress.objects.get_new(user),
        "sends_email": settings.SENDS_EMAIL,
    }
    return render(request, "me/profile.html", context, status=400 if form.errors else 200)


def _save(request: HttpRequest, user: User, form: ProfileForm) -> None:
    """Save the e-mail address first: this may ask for the password and repeat the request."""
    given = form.cleaned_data
    if given["email"] != user.email:
        _new_address(request, user, given["email"])
    if given["name"] != user.get_full_name():
        change_name(user, given["name"])
    if given["theme"] != user.theme:
        change_theme(user, Theme(given["theme"]))
    if given["time_zone"] != user.time_zone:
        change_time_zone(user, given["time_zone"])
    messages.success(request, "Saved.")


def _new_address(request: HttpRequest, user: User, email: str) -> None:
    raise_if_reauthentication_required(request, app="allauth.account")
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
    return redirect(back if here else "dashboard")


@require_GET
def security(request: HttpRequest) -> HttpResponse:
    user = current_user(request)
    linked = list(SocialAccount.objects.filter(user=user).order_by("pk"))
    names = {one.key: one.name for one in login_providers()}
    context = {
        "here": hash_session_key(request.session.session_key or ""),
        "sessions": sessions_of(user),
        "second_factor": Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).first(),
        "codes": _recovery_codes_left(user),
        "linked": [
            (account, names.get(account.provider, account.provider), _name_at_provider(account))
            for account in linked
        ],
        "to_link": [
            one for one in login_providers() if one.key not in {account.provider for account in linked}
        ],
    }
    return render(request, "me/security.html", context)


def _name_at_provider(account: SocialAccount) -> str:
    """Return the name or e-mail address of the user at the provider."""
    said = account.extra_data.get("userinfo") or account.extra_data
    return str(said.get("email") or said.get("login") or account.uid)


def _recovery_codes_left(user: User) -> int:
    codes = Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES).first()
    return len(codes.wrap().get_unused_codes()) if codes else 0


@require_POST
def session_end(request: HttpRequest, session: str) -> HttpResponse:
    if end_session(current_user(request), session):
        messages.success(request, "Session ended.")
    return redirect("me_security")


@require_POST
def sessions_end(request: HttpRequest) -> HttpResponse:
    ended = end_other_sessions(current_user(request), but=request.session.session_key)
    messages.success(request, f"Logged out everywhere else: {ended} session{'' if ended == 1 else 's'}.")
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

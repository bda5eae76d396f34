"""Record in the audit log what happens to accounts (W4)."""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from allauth.mfa import signals as mfa
from allauth.mfa.models import Authenticator
from allauth.socialaccount import signals as social
from django.contrib.auth import signals as auth
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from tasks_app.history.audit import record
from tasks_app.models import Action, User
from tasks_app.services.accounts import end_sessions, record_failed_login, revoke_all_tokens


@receiver(auth.user_logged_in)
def store_origin_in_session(request: HttpRequest, user: User, **_: Any) -> None:
    """Store where the session was started, for the user's list of sessions."""
    request.session["address"] = request.META.get("REMOTE_ADDR", "")[:60]
    request.session["browser"] = describe_browser(request.META.get("HTTP_USER_AGENT", ""))
    request.session["begun"] = timezone.now().isoformat()


@receiver(account.user_logged_in)
def logged_in(user: User, sociallogin: Any = None, **_: Any) -> None:
    record(Action.LOGGED_IN, by=user, **_provider(sociallogin))


@receiver(auth.user_logged_out)
def logged_out(user: User | None, **_: Any) -> None:
    if user is not None:
        record(Action.LOGGED_OUT, by=user)


@receiver(auth.user_login_failed)
def login_failed(credentials: dict[str, Any], **_: Any) -> None:
    record_failed_login(str(credentials.get("username") or credentials.get("email") or ""))


@receiver(mfa.authentication_failed)
def second_factor_failed(user: User, **_: Any) -> None:
    record_failed_login(user.get_username(), why="second factor")


@receiver(account.password_changed)
@receiver(account.password_set)
def password_changed(request: HttpRequest, user: User, **_: Any) -> None:
    record(Action.PASSWORD_CHANGED, by=user, subject=user.get_username())
    end_sessions(user, but=request.session.session_key)
    _revoke_tokens_if_wanted(request, user)


@receiver(account.password_reset)
def password_reset(request: HttpRequest, user: User, **_: Any) -> None:
    record(Action.PASSWORD_CHANGED, by=user, subject=user.get_username(), through="e-mail")
    end_sessions(user)
    _revoke_tokens_if_wanted(request, user)


def _revoke_tokens_if_wanted(request: HttpRequest, user: User) -> None:
    """A token outlives the password; the form asks whether it was to."""
    if "revoke_tokens" in request.POST:
        revoke_all_tokens(user, by=user)


@receiver(account.email_changed)
def email_changed(user: User, from_email_address: Any, to_email_address: Any, **_: Any) -> None:
    before = from_email_address.email if from_email_address else ""
    changed = {"email": [before, to_email_address.email]}
    record(Action.ACCOUNT_CHANGED, by=user, subject=user.get_username(), changed=changed)


@receiver(mfa.authenticator_added)
@receiver(mfa.authenticator_removed)
@receiver(mfa.authenticator_reset)
def second_factor_changed(signal: Any, user: User, authenticator: Authenticator, **_: Any) -> None:
    if authenticator.type == Authenticator.Type.TOTP:
        on = signal is mfa.authenticator_added
        action = Action.SECOND_FACTOR_ON if on else Action.SECOND_FACTOR_OFF
        record(action, by=user, subject=user.get_username())
    elif signal is mfa.authenticator_reset:
        record(Action.ACCOUNT_CHANGED, by=user, subject=user.get_username(), changed=["recovery codes"])


@receiver(social.social_account_added)
def login_linked(sociallogin: Any, **_: Any) -> None:
    linked = sociallogin.account
    changed = {"linked": [linked.provider, linked.uid]}
    record(Action.ACCOUNT_CHANGED, by=linked.user, subject=linked.user.get_username(), changed=changed)


@receiver(account.user_signed_up)
def account_created(user: User, sociallogin: Any = None, **_: Any) -> None:
    record(Action.ACCOUNT_MADE, by=user, subject=user.get_username(), **_provider(sociallogin))


def _provider(sociallogin: Any) -> dict[str, Any]:
    return {"through": sociallogin.account.provider} if sociallogin else {}


_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def describe_browser(user_agent: str) -> str:
    """Return for example “Firefox on Linux”; "" if nothing in it is known."""
    browser = next((name for sign, name in _BROWSERS if sign in user_agent), "")
    system = next((name for sign, name in _SYSTEMS if sign in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system

"""The portal's differences from allauth's default login."""

from __future__ import annotations

import base64
import hashlib
import logging
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.models import EmailAddress
from allauth.account.utils import filter_users_by_email
from allauth.core.internal import ratelimit
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.github.provider import GitHubProvider
from cryptography.fernet import Fernet
from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from tasks_app.absolute_urls import absolute_url
from tasks_app.models import User
from tasks_app.web.accounts.attempts import HashingBusy, remember_browser, user_of_browser
from tasks_app.web.accounts.providers import CheckedGitHub, CheckedOpenIDConnect

logger = logging.getLogger(__name__)

_WRONG_CREDENTIALS = "Wrong user name or password. Passwords are case-sensitive."
TOO_MANY = (
    "Too many failed logins for this user name from your IP address. Wait five minutes, then try again."
)
TOO_MANY_ANYWHERE = "Too many failed logins for this user name. Wait an hour, or ask a site admin."


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "username_password_mismatch": _WRONG_CREDENTIALS,
        "email_password_mismatch": _WRONG_CREDENTIALS,
        "too_many_login_attempts": TOO_MANY,
        "too_many_anywhere": TOO_MANY_ANYWHERE,
        "incorrect_password": "Wrong password.",
        "enter_current_password": "Wrong current password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: users are invited, or created by a site admin."""
        return False

    def is_ajax(self, request: HttpRequest) -> bool:
        """Return False: pages are for browsers; programs use the API."""
        return False

    def is_safe_url(self, url: str | None) -> bool:
        """Accept only this host and port: an agent may listen on another one."""
        request = self.request
        allowed_hosts = {request.get_host()}
        return bool(url) and url_has_allowed_host_and_scheme(
            url, allowed_hosts, require_https=request.is_secure()
        )

    def add_message(self, request: HttpRequest, level: int, *args: Any, **kwargs: Any) -> None:
        """Suppress allauth's login and logout messages."""
        template = kwargs.get("message_template") or next(iter(args), "") or ""
        if not template.startswith("account/messages/logged_"):
            super().add_message(request, level, *args, **kwargs)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Count by user name and IP address, so that nobody can lock out another user."""
        name = credentials.get("email") or credentials.get("username") or ""
        return f"{self.get_client_ip(request)} {_normalized_name(name)}"

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        """Pass an e-mail address on only once.

        An address arrives as `username` too, and allauth's backend looks for both under that alone. Given
        twice, the password would be checked twice, and the time would tell strangers that the address exists.
        """
        if credentials.get("email") == credentials.get("username"):
            credentials.pop("email", None)
        try:
            user = super().authenticate(request, **credentials)
        except HashingBusy:  # no password was checked, so this was no failure
            self._rollback_login_failed_rl_usage()
            raise
        # Only now, and for all others alike: neither the answer nor its time says who has a second factor.
        if self._is_locked_out and not (user and _has_second_factor(user)):
            raise self.validation_error("too_many_anywhere")
        return user

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Apply a second limit for all IP addresses: an agent on this machine can change its own easily.

        Strangers can exhaust it, so it does not hold for a browser in which the user has logged in before,
        nor for the password of a user with a second factor, which alone lets nobody in.
        """
        super().pre_authenticate(request, **credentials)
        name = _normalized_name(str(credentials.get("email") or credentials.get("username") or ""))
        self._consumed_anywhere = ratelimit.consume(
            request, app="allauth.account", action="login_failed_anywhere", key=name
        )
        self._is_locked_out = self._consumed_anywhere is None and not _is_known(request, name)

    def post_login(self, request: HttpRequest, user: User, **details: Any) -> HttpResponse:
        response: HttpResponse = super().post_login(request, user, **details)
        remember_browser(response, user)
        return response

    def _rollback_login_failed_rl_usage(self) -> None:
        super()._rollback_login_failed_rl_usage()
        if self._consumed_anywhere:
            self._consumed_anywhere.rollback()

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("me_security")

    def get_email_verification_redirect_url(self, email_address: EmailAddress) -> str:
        return reverse("me" if self.request.user.is_authenticated else "login")

    def get_reset_password_from_key_url(self, key: str) -> str:
        return _portal_url(super().get_reset_password_from_key_url(key))

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return _portal_url(super().get_email_confirmation_url(request, emailconfirmation))

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Log a failure instead of raising: it must not break a page, nor show whether an address exists."""
        if not settings.SENDS_EMAIL:
            return
        try:
            super().send_mail(template_prefix, email, context)
        except OSError:
            logger.warning("an e-mail could not be sent", exc_info=True)


def _is_known(request: HttpRequest, name: str) -> bool:
    """Return whether the user has logged in in this browser before, and has not failed too often since."""
    known = user_of_browser(request)
    named = Q(username__iexact=name) | Q(email__iexact=name)
    if known is None or not User.objects.filter(named, pk=known).exists():
        return False
    attempt = ratelimit.consume(request, app="allauth.account", action="login_failed_known", key=str(known))
    return attempt is not None


def _has_second_factor(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type=Authenticator.Type.TOTP).exists())


def _normalized_name(name: str) -> str:
    """Return the same text for all spellings that PostgreSQL finds one user by: it compares in upper case."""
    return name.upper().lower()


def _portal_url(link: str) -> str:
    """Replace host and port: a stranger controls the request's, and an agent may listen on that port."""
    return absolute_url(urlsplit(link).path)


class SocialAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Single sign-on: a provider's user is matched only by an address that both sides have verified."""

    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> Any:
        found = super().get_provider(request, provider, client_id)
        checked = CheckedGitHub if isinstance(found, GitHubProvider) else CheckedOpenIDConnect
        return checked(request, app=found.app)

    def can_authenticate_by_email(self, login: Any, email: str) -> bool:
        return bool(EmailAddress.objects.filter(email=email.lower(), verified=True).exists())

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        if settings.ENVIRONMENT.sso_signup != "yes":
            return False
        emails = [address.email for address in sociallogin.email_addresses]
        return not any(filter_users_by_email(email) for email in emails)

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: Any) -> str:
        return reverse("me_security")


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Encrypts the secrets of second factors, so that a copy of the table is useless."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "Wrong code. Your app shows a new code every 30 seconds.",
    }

    def get_totp_label(self, user: User) -> str:
        return user.get_username()

    def encrypt(self, text: str) -> str:
        return _second_factor_cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _second_factor_cipher().decrypt(encrypted_text.encode()).decode()


def _second_factor_cipher() -> Fernet:
    key = hashlib.sha256(f"second factor {settings.SECRET_KEY}".encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))

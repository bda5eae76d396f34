"""How the portal's login differs from what allauth does by itself."""

from __future__ import annotations

import base64
import hashlib
import logging
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.userkit import filter_users_by_email
from allauth.account.models import EmailAddress
from allauth.core.internal import ratelimit
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from cryptography.fernet import Fernet
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from tasks_app.models import User
from tasks_app.notifications.message import absolute

logger = logging.getLogger(__name__)

_WRONG = "Wrong user name or password. Passwords are case-sensitive."
TOO_MANY = (
    "Too many failed logins for this user name from your IP address. Wait five minutes, then try again."
)


TOO_MANY_ANYWHERE = "Too many failed logins for this user name. Wait an hour, or ask a site admin."


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "username_password_mismatch": _WRONG,
        "email_password_mismatch": _WRONG,
        "too_many_login_attempts": TOO_MANY,
        "too_many_anywhere": TOO_MANY_ANYWHERE,
        "incorrect_password": "Wrong password.",
        "enter_current_password": "Wrong current password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """People come by invitation, or are made by a site admin."""
        return False

    def is_ajax(self, request: HttpRequest) -> bool:
        """Pages are for browsers; programs have the API."""
        return False

    def is_safe_url(self, url: str | None) -> bool:
        """Only to this very host and port: what listens on another one may be an agent's."""
        request = self.request
        here = {request.get_host()}
        return bool(url) and url_has_allowed_host_and_scheme(url, here, require_https=request.is_secure())

    def add_message(self, request: HttpRequest, level: int, *args: Any, **kwargs: Any) -> None:
        """That one is logged in, or out, can be seen."""
        template = kwargs.get("message_template") or (args[0] if args else "") or ""
        if not template.startswith("account/messages/logged_"):
            super().add_message(request, level, *args, **kwargs)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Name and address: nobody can lock out another person, nor an attacker the person under attack."""
        tried = credentials.get("email") or credentials.get("username") or ""
        return f"{self.get_client_ip(request)} {_folded(tried)}"

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        """An address comes as a name too, and allauth's backend looks for both under that alone. Given twice,
        the password would be checked twice, and the time would tell a stranger that the address is known.
        """
        if credentials.get("email") == credentials.get("username"):
            credentials.pop("email", None)
        return super().authenticate(request, **credentials)

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """A second, wider limit for who changes addresses as easily as an agent on this machine can."""
        super().pre_authenticate(request, **credentials)
        tried = _folded(str(credentials.get("email") or credentials.get("username") or ""))
        self._anywhere = ratelimit.consume(
            request, app="allauth.account", action="login_failed_anywhere", key=tried
        )
        if self._anywhere is None:
            raise self.validation_error("too_many_anywhere")

    def _rollback_login_failed_rl_usage(self) -> None:
        super()._rollback_login_failed_rl_usage()
        if self._anywhere:
            self._anywhere.rollback()

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("me_security")

    def get_email_verification_redirect_url(self, email_address: EmailAddress) -> str:
        return reverse("me" if self.request.user.is_authenticated else "login")

    def get_reset_password_from_key_url(self, key: str) -> str:
        return _at_the_portal(super().get_reset_password_from_key_url(key))

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return _at_the_portal(super().get_email_confirmation_url(request, emailconfirmation))

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """A mail server that is away breaks no page; whether an address is known must not show either."""
        if not settings.SENDS_EMAIL:
            return
        try:
            super().send_mail(template_prefix, email, context)
        except OSError:
            logger.warning("an e-mail could not be sent", exc_info=True)


def _folded(name: str) -> str:
    """The same for all spellings that PostgreSQL finds one person by: it compares in upper case."""
    return name.upper().lower()


def _at_the_portal(link: str) -> str:
    """Host and port of a request are in a stranger's hand, and on another port an agent may listen."""
    return absolute(urlsplit(link).path)


class SocialAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """Somebody else vouches for a person: only for an address that is verified on both sides."""

    def can_authenticate_by_email(self, login: Any, email: str) -> bool:
        return bool(EmailAddress.objects.filter(email=email.lower(), verified=True).exists())

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        if settings.ENVIRONMENT.sso_signup != "yes":
            return False
        addresses = [given.email for given in sociallogin.email_addresses]
        return not any(filter_users_by_email(address) for address in addresses)

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: Any) -> str:
        return reverse("me_security")


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets of second factors are encrypted with the installation's key: a copy of the table is no help."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "Wrong code. Your app shows a new code every 30 seconds.",
    }

    def get_totp_label(self, user: User) -> str:
        return user.get_username()

    def encrypt(self, text: str) -> str:
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _cipher().decrypt(encrypted_text.encode()).decode()


def _cipher() -> Fernet:
    key = hashlib.sha256(f"second factor {settings.SECRET_KEY}".encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))

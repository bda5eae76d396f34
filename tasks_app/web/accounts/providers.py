"""The providers of single sign-on that the settings configure, and what of their claims is believed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from allauth.socialaccount.providers.github.provider import GitHubProvider
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from django.conf import settings
from django.http import HttpRequest

from tasks_app.core.text import storable_text, strip_controls

logger = logging.getLogger(__name__)

#: Claims about a person that are stored or shown, all of them text.
_TEXTS = ("email", "preferred_username", "name", "given_name", "family_name", "login", "html_url")
_LONGEST_TEXT = 320  # an e-mail address (RFC 3696)
_LONGEST_SUBJECT = 255  # OpenID Connect Core 1.0, section 2


@dataclass(frozen=True)
class LoginProvider:
    key: str
    name: str


def login_providers() -> list[LoginProvider]:
    environment = settings.ENVIRONMENT
    configured = []
    if environment.oidc_issuer:
        configured.append(LoginProvider("oidc", environment.oidc_name))
    if environment.github_client_id:
        configured.append(LoginProvider("github", "GitHub"))
    return configured


class UnusableClaim(OAuth2Error):  # type: ignore[misc]
    """A claim of the provider has another type than it must have. The text names the claim, not its value."""

    def __init__(self, claim: str, expected: str) -> None:
        self.sentence = f"The provider sent a “{claim}” that is not {expected}."
        super().__init__(self.sentence)
        logger.warning("single sign-on: %s", self.sentence)


class CheckedOpenIDConnect(OpenIDConnectProvider):  # type: ignore[misc]
    """OpenID Connect whose claims are parsed to their types before anything is looked up by them.

    allauth takes any true value for a verified address, also the text "false", which providers send.
    """

    def sociallogin_from_response(self, request: HttpRequest, response: Any) -> Any:
        id_token, userinfo = (response.get(part) for part in ("id_token", "userinfo"))
        chosen = _checked_person(userinfo or id_token, subject="sub")
        if userinfo and id_token and chosen["sub"] != _subject(id_token, "sub"):
            # OpenID Connect Core 1.0, section 5.3.2: such a response must not be used.
            raise UnusableClaim("sub", "the one of its signed token")
        chosen["email_verified"] = _is_verified(chosen)
        return super().sociallogin_from_response(request, {"userinfo": chosen})


class CheckedGitHub(GitHubProvider):  # type: ignore[misc]
    """GitHub whose response is parsed to its types."""

    def sociallogin_from_response(self, request: HttpRequest, response: Any) -> Any:
        chosen = _checked_person(response, subject="id")
        addresses = response.get("emails") or []
        if not isinstance(addresses, list):
            raise UnusableClaim("emails", "a list")
        chosen["emails"] = [
            {
                "email": _text(address, "email"),
                "primary": address.get("primary") is True,
                "verified": _is_verified(address, claim="verified"),
            }
            for address in addresses
            if isinstance(address, dict) and address.get("email")
        ]
        return super().sociallogin_from_response(request, chosen)


def _checked_person(claims: Any, *, subject: str) -> dict[str, Any]:
    """Return the subject and the text claims, and nothing else of what the provider sent."""
    if not isinstance(claims, dict):
        raise UnusableClaim("userinfo", "an object")
    found = {claim: _text(claims, claim) for claim in _TEXTS if claims.get(claim) is not None}
    return {**found, subject: _subject(claims, subject), "email_verified": claims.get("email_verified")}


def _subject(claims: Any, claim: str) -> str:
    value = claims.get(claim) if isinstance(claims, dict) else None
    if type(value) is int:  # GitHub's ids are numbers
        value = str(value)
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_SUBJECT or "\0" in value:
        raise UnusableClaim(claim, "an identifier")
    return value


def _text(claims: dict[str, Any], claim: str) -> str:
    value = claims[claim]
    if not isinstance(value, str):
        raise UnusableClaim(claim, "a text")
    if claim != "email":  # only shown: names have characters of all kinds
        return storable_text(strip_controls(value))[:_LONGEST_TEXT]
    if len(value) > _LONGEST_TEXT or not value.isprintable():
        raise UnusableClaim(claim, f"a text of at most {_LONGEST_TEXT} printable characters")
    return value


def _is_verified(claims: dict[str, Any], claim: str = "email_verified") -> bool:
    """Return whether the e-mail address is verified: only JSON's true and the text "true" say so.

    An address with characters beyond ASCII counts as not verified: two that differ may become one when their
    case is folded, and would open the same account here.
    """
    value = claims.get(claim)
    if value is not None and not isinstance(value, bool) and value not in ("true", "false"):
        raise UnusableClaim(claim, "true or false")
    return (value is True or value == "true") and str(claims.get("email", "")).isascii()

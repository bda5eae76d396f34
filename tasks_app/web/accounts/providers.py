"""The providers of single sign-on that the settings configure."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings


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

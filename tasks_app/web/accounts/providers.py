"""Who else may vouch for a person, as the variables say."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings


@dataclass(frozen=True)
class VouchingProvider:
    key: str
    name: str


def providers() -> list[VouchingProvider]:
    environment = settings.ENVIRONMENT
    found = []
    if environment.oidc_issuer:
        found.append(VouchingProvider("oidc", environment.oidc_name))
    if environment.github_client_id:
        found.append(VouchingProvider("github", "GitHub"))
    return found

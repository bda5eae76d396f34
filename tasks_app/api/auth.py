"""Authentication: a personal token with its scopes, or the session of a browser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from tasks_app.api.limits import count_request
from tasks_app.api.problems import Kind, Refused
from tasks_app.history import audit
from tasks_app.models import Channel, Scope
from tasks_app.permissions import Principal
from tasks_app.services.accounts import lacks_second_factor, note_use, record_refused_token, token_of


def principal_of(request: HttpRequest) -> Principal:
    """Return the authenticated principal of a request to an operation."""
    return cast(Principal, request.auth)  # type: ignore[attr-defined]


def origin_of(principal: Principal) -> audit.ActionOrigin:
    """Return the origin that the audit log records for the principal's requests."""
    origin, token = audit.current_origin(), principal.token.name if principal.token else ""
    via = origin.via if origin.program else Channel.API
    return replace(origin, via=via, token=token)


def channel() -> Channel:
    """Return through what the present operation was called: the API, or the MCP server."""
    return Channel(audit.current_origin().via)


def _rate_limit_key(principal: Principal) -> str:
    if principal.token:
        return f"token-{principal.token.pk}"
    return f"user-{principal.user.pk}"


def accept_token(request: HttpRequest, secret: str) -> Principal:
    """Return who shows this token; note its use and count the request. Raises Refused."""
    found = token_of(secret)
    if found is None:
        record_refused_token(secret)
        raise _not_authenticated("This token is unknown, expired or revoked.")
    principal = Principal.of_token(found)
    origin = origin_of(principal)
    with audit.acting_from(origin):
        note_use(found, ip_address=origin.ip_address)
    count_request(request, _rate_limit_key(principal))
    return principal


def require_scope(principal: Principal, scope: Scope) -> None:
    """Raise Refused if the principal's token lacks the scope."""
    token = principal.token
    if token and scope not in token.scopes:
        detail = f"The token “{token.name}” lacks the scope “{scope.value}”. It has: "
        challenge = f'Bearer realm="Cat Herder", error="insufficient_scope", scope="{scope.value}"'
        raise Refused(
            Kind.SCOPE_MISSING, detail + ", ".join(token.scopes), headers={"WWW-Authenticate": challenge}
        )


class PersonalToken(HttpBearer):
    """`Authorization: Bearer cath_…`"""

    openapi_description = "A personal API token, created in the portal under My settings, API tokens."

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> Any:
        """Judge a request by its header if it has one: a cookie does not make up for a bad token."""
        if accepted := getattr(request, "accepted", None):  # the MCP server has accepted its token
            require_scope(accepted, self.scope)
            return accepted
        if "Authorization" not in request.headers:
            return None
        scheme, _, secret = request.headers["Authorization"].partition(" ")
        if scheme.lower() != "bearer":
            raise _not_authenticated("“Authorization” must be “Bearer” and a token.")
        return self.authenticate(request, secret.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Principal:
        principal = accept_token(request, token)
        require_scope(principal, self.scope)
        return principal


class BrowserLogin(APIKeyCookie):
    """The session of the portal's pages. Requests that change something need the CSRF token."""

    param_name = settings.SESSION_COOKIE_NAME
    openapi_description = "The session of a browser. All requests but GET also need the header X-CSRFToken."

    def __call__(self, request: HttpRequest) -> Any:
        return self.authenticate(request, None)

    def authenticate(self, request: HttpRequest, key: str | None) -> Principal | None:
        if not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise Refused(Kind.NOT_ALLOWED, "A request with a browser session needs the header X-CSRFToken.")
        if lacks_second_factor(request.user):
            raise Refused(Kind.NOT_ALLOWED, "This portal requires a second factor. Set it up in the portal.")
        principal = Principal.unrestricted(request.user)
        count_request(request, _rate_limit_key(principal))
        return principal


def authenticators(scope: Scope) -> list[Any]:
    """Return the authenticators of an operation that needs this scope."""
    return [PersonalToken(scope), BrowserLogin()]


def _not_authenticated(detail: str) -> Refused:
    headers = {"WWW-Authenticate": 'Bearer realm="Cat Herder", error="invalid_token"'}
    return Refused(Kind.NOT_LOGGED_IN, detail, headers=headers)

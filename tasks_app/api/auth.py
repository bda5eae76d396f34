"""Who calls, and what they may call: a token or the login of the browser."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpRequest
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from tasks_app.api.limits import count_request
from tasks_app.api.problems import Kind, Refused
from tasks_app.history import audit
from tasks_app.models import Channel, Scope
from tasks_app.permissions import Principal
from tasks_app.services.tokens import note_use, token_of


def principal_of(request: HttpRequest) -> Principal:
    """Who calls, as one of the authenticators below found out. For operations, which all have one."""
    return cast(Principal, request.auth)  # type: ignore[attr-defined]


def origin_of(principal: Principal) -> audit.ActionOrigin:
    """What the audit log says about where the principal's request came from."""
    token = principal.token.name if principal.token else ""
    return audit.ActionOrigin(via=Channel.API, ip_address=audit.current_origin().ip_address, token=token)


def _rate_limit_key(principal: Principal) -> str:
    return f"token-{principal.token.pk}" if principal.token else f"user-{principal.user.pk}"


class PersonalToken(HttpBearer):
    """`Authorization: Bearer cath_…`"""

    openapi_description = "A personal API token, made in the portal under My settings, API tokens."

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> Any:
        """Whoever shows anything is judged by that: a bad token is not made good by a cookie."""
        if "Authorization" not in request.headers:
            return None
        scheme, _, secret = request.headers["Authorization"].partition(" ")
        if scheme.lower() != "bearer":
            raise _unknown("“Authorization” must be “Bearer” and a token.")
        return self.authenticate(request, secret.strip())

    def authenticate(self, request: HttpRequest, token: str) -> Principal:
        found = token_of(token)
        if found is None:
            raise _unknown("This token is unknown, expired or revoked.")
        principal = Principal.of_token(found)
        origin = origin_of(principal)
        with audit.acting_from(origin):
            note_use(found, address=origin.ip_address)
        count_request(request, _rate_limit_key(principal))
        if self.scope not in found.scopes:
            lacking = f"The token “{found.name}” lacks the scope “{self.scope.value}”; it may: "
            raise Refused(Kind.SCOPE_MISSING, lacking + ", ".join(found.scopes))
        return principal


class BrowserLogin(APIKeyCookie):
    """The session of the portal's own pages, with the CSRF token for everything that changes something."""

    param_name = "sessionid"
    openapi_description = "The login of a browser. What is no GET needs the header X-CSRFToken as well."

    def __call__(self, request: HttpRequest) -> Any:
        return self.authenticate(request, None)

    def authenticate(self, request: HttpRequest, key: str | None) -> Principal | None:
        if not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise Refused(Kind.NOT_ALLOWED, "With a browser’s login the header X-CSRFToken is needed.")
        principal = Principal.unrestricted(request.user)
        count_request(request, _rate_limit_key(principal))
        return principal


def doors(scope: Scope) -> list[Any]:
    """For an operation that needs this scope."""
    return [PersonalToken(scope), BrowserLogin()]


def _unknown(detail: str) -> Refused:
    headers = {"WWW-Authenticate": 'Bearer realm="Cat Herder", error="invalid_token"'}
    return Refused(Kind.NOT_LOGGED_IN, detail, headers=headers)

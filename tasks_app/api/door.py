"""Who calls, and what they may call: a token or the login of the browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.http import HttpRequest
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from tasks_app.api.limits import count_request
from tasks_app.api.problems import Kind, Refused
from tasks_app.history import audit
from tasks_app.models import ApiToken, Channel, Scope, User
from tasks_app.services.tokens import note_use, token_of


@dataclass(frozen=True)
class Caller:
    """A person, and the token that acts for them, if it is not they themselves in a browser."""

    user: User
    token: ApiToken | None = None

    @property
    def name(self) -> str:
        """By which their requests are counted."""
        return f"token-{self.token.pk}" if self.token else f"user-{self.user.pk}"

    @property
    def origin(self) -> audit.Origin:
        token = self.token.name if self.token else ""
        return audit.Origin(via=Channel.API, address=audit.origin().address, token=token)


def caller(request: HttpRequest) -> Caller:
    """Who calls. Only for operations, which are all behind a door."""
    return cast(Caller, request.auth)  # type: ignore[attr-defined]


def person(request: HttpRequest) -> User:
    return caller(request).user


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

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        found = token_of(token)
        if found is None:
            raise _unknown("This token is unknown, expired or revoked.")
        found.user.reach = found.reach
        entered = Caller(found.user, found)
        with audit.acting_from(entered.origin):
            note_use(found, address=entered.origin.address)
        count_request(request, entered.name)
        if self.scope not in found.scopes:
            lacking = f"The token “{found.name}” lacks the scope “{self.scope.value}”; it may: "
            raise Refused(Kind.SCOPE_MISSING, lacking + ", ".join(found.scopes))
        return entered


class BrowserLogin(APIKeyCookie):
    """The session of the portal's own pages, with the CSRF token for everything that changes something."""

    param_name = "sessionid"
    openapi_description = "The login of a browser. What is no GET needs the header X-CSRFToken as well."

    def __call__(self, request: HttpRequest) -> Any:
        return self.authenticate(request, None)

    def authenticate(self, request: HttpRequest, key: str | None) -> Caller | None:
        if not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise Refused(Kind.NOT_ALLOWED, "With a browser’s login the header X-CSRFToken is needed.")
        entered = Caller(request.user)
        count_request(request, entered.name)
        return entered


def doors(scope: Scope) -> list[Any]:
    """For an operation that needs this scope."""
    return [PersonalToken(scope), BrowserLogin()]


def _unknown(detail: str) -> Refused:
    headers = {"WWW-Authenticate": 'Bearer realm="Cat Herder", error="invalid_token"'}
    return Refused(Kind.NOT_LOGGED_IN, detail, headers=headers)

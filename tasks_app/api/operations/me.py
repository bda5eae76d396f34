"""Who you are to the portal."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from tasks_app.api.door import caller, doors
from tasks_app.api.operation import responses
from tasks_app.api.schemas.projects import Me, TokenFacts
from tasks_app.models import ApiToken, Scope

router = Router(tags=["Me"])


@router.get("/me", response=responses(Me), auth=doors(Scope.READ))
def get_me(request: HttpRequest) -> Me:
    """You, and what the token that you use may do."""
    user, token = caller(request).user, caller(request).token
    return Me(
        username=user.get_username(),
        name=user.shown_name,
        email=user.email,
        is_admin=user.is_superuser,
        token=_token(token) if token else None,
    )


def _token(token: ApiToken) -> TokenFacts:
    projects = list(token.projects.values_list("name", flat=True)) if token.restricted else None
    expires = token.expires_at.isoformat() if token.expires_at else None
    return TokenFacts(name=token.name, scopes=token.scopes, projects=projects, expires_at=expires)

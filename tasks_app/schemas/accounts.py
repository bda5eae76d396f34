"""JSON models of the user and their tokens."""

from __future__ import annotations

from pydantic import Field

from tasks_app.models import ApiToken, Scope
from tasks_app.schemas.base import DateTime, Out, UserOut


class TokenOut(Out):
    """A personal API token, without its secret."""

    name: str = Field(description="The name, which says what it is for.")
    scopes: list[Scope] = Field(description="Permitted uses: read, answer, write, manage.")
    projects: list[str] | None = Field(description="The projects that it is restricted to; null for all.")
    expires_at: DateTime | None = Field(description="When it expires; null for never.")

    @staticmethod
    def resolve_projects(token: ApiToken) -> list[str] | None:
        return [project.name for project in token.projects.all()] if token.restricted else None


class TokenListed(TokenOut):
    id: int = Field(validation_alias="pk", description="The token's id.")
    made_at: DateTime = Field(description="When it was made.")
    last_used_at: DateTime | None = Field(description="When it was used last, to the minute.")
    last_used_ip_address: str = Field(description="The IP address from which it was used last.")


class Me(UserOut):
    email: str = Field(description="Your e-mail address.")
    is_admin: bool = Field(validation_alias="is_superuser", description="Whether you are a site admin.")
    token: TokenOut | None = Field(description="The token that was used; null with a browser's login.")

"""Operations on your account: your notices and tokens."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import ExactNumber, Input, Paging, TokenId, page_of, responses
from tasks_app.models import Scope
from tasks_app.notifications.preferences import mark_read
from tasks_app.schemas.accounts import Me, TokenListed
from tasks_app.schemas.notifications import NoticeOut
from tasks_app.services.accounts import revoke_token as revoke


class TokenPage(Schema):
    items: list[TokenListed] = Field(description="Tokens, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NoticePage(Schema):
    items: list[NoticeOut] = Field(description="Notices, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class Read(Input):
    notice: ExactNumber | None = Field(None, description="The id of a notice; default: all notices.")


class ReadDone(Schema):
    read: int = Field(description="The number of notices that were unread.")


router = Router(tags=["Me"])


class NoticeFilters(Schema):
    unread: bool = Field(False, description="Only unread notices.")


@router.get("/me", response=responses(Me), auth=authenticators(Scope.READ))
def get_me(request: HttpRequest) -> Me:
    """Return your user and the permissions of the token that you use."""
    principal = principal_of(request)
    return Me.from_row(principal.user, token=principal.token)


@router.get("/me/notices", response=responses(NoticePage), auth=authenticators(Scope.READ))
def list_notices(request: HttpRequest, only: Query[NoticeFilters], paging: Query[Paging]) -> NoticePage:
    """List your notices, the newest first."""
    rows = permissions.notices_visible_to(principal_of(request))
    if only.unread:
        rows = rows.unread()
    rows = rows.select_related("task__project").defer("task__text")
    found, following = page_of(request, rows, paging)
    return NoticePage(items=[NoticeOut.from_row(row) for row in found], next=following)


@router.post("/me/notices/read", response=responses(ReadDone), auth=authenticators(Scope.WRITE))
def read_notices(request: HttpRequest, body: Read) -> ReadDone:
    """Mark one of your notices as read, or all of them."""
    return ReadDone(read=mark_read(principal_of(request), body.notice))


@router.get("/me/tokens", response=responses(TokenPage), auth=authenticators(Scope.MANAGE))
def list_tokens(request: HttpRequest, paging: Query[Paging]) -> TokenPage:
    """List your tokens that are not revoked. New tokens are created in the portal, with your password.

    A token that is restricted to some projects can only list and revoke itself.
    """
    rows = permissions.tokens_visible_to(principal_of(request)).filter(revoked_at=None)
    found, following = page_of(request, rows.prefetch_related("projects"), paging)
    return TokenPage(items=[TokenListed.from_row(row) for row in found], next=following)


@router.delete(
    "/me/tokens/{token_id}", response=responses(None, 404, status=204), auth=authenticators(Scope.MANAGE)
)
def revoke_token(request: HttpRequest, token_id: TokenId) -> Status[None]:
    """Revoke a token. This cannot be undone."""
    revoke(permissions.token_or_404(principal_of(request), token_id), by=principal_of(request))
    return Status(204, None)

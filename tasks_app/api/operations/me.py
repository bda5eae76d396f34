"""Who you are to the portal, what it told you, and your tokens."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from tasks_app import permissions
from tasks_app.api.auth import doors, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import TokenId
from tasks_app.api.schemas.me import NoticePage, Read, ReadDone, TokenPage
from tasks_app.models import Scope
from tasks_app.notifications.personal_channels import mark_read
from tasks_app.reporting.schemas.me import Me, NoticeOut, TokenListed
from tasks_app.services.tokens import revoke_token as revoke

router = Router(tags=["Me"])


class NoticeFilters(Schema):
    unread: bool = Field(False, description="Only those that you have not read.")


@router.get("/me", response=responses(Me), auth=doors(Scope.READ))
def get_me(request: HttpRequest) -> Me:
    """You, and what the token that you use may do."""
    return Me.of_principal(principal_of(request))


@router.get("/me/notices", response=responses(NoticePage), auth=doors(Scope.READ))
def list_notices(request: HttpRequest, only: Query[NoticeFilters], paging: Query[Paging]) -> NoticePage:
    """What you were told in the page, the newest first."""
    rows = permissions.notices_visible_to(principal_of(request))
    rows = (rows.unread() if only.unread else rows).select_related("task__project").defer("task__text")
    found, following = page_of(request, rows, paging)
    return NoticePage(items=[NoticeOut.of(row) for row in found], next=following)


@router.post("/me/notices/read", response=responses(ReadDone), auth=doors(Scope.READ))
def read_notices(request: HttpRequest, body: Read) -> ReadDone:
    """Mark one notice as read, or all of them. It changes nothing for others."""
    return ReadDone(read=mark_read(principal_of(request), body.notice))


@router.get("/me/tokens", response=responses(TokenPage), auth=doors(Scope.MANAGE))
def list_tokens(request: HttpRequest, paging: Query[Paging]) -> TokenPage:
    """Your tokens that are not revoked. New ones are made in the portal, with your password.

    A token that is restricted to some projects sees and revokes itself alone.
    """
    rows = permissions.tokens_visible_to(principal_of(request)).filter(revoked_at=None)
    found, following = page_of(request, rows.prefetch_related("projects"), paging)
    return TokenPage(items=[TokenListed.of(row) for row in found], next=following)


@router.delete("/me/tokens/{token_id}", response=responses(None, 404, status=204), auth=doors(Scope.MANAGE))
def revoke_token(request: HttpRequest, token_id: TokenId) -> Status[None]:
    """Whatever uses the token is refused from then on. This cannot be undone."""
    revoke(permissions.token_or_404(principal_of(request), token_id), by=principal_of(request))
    return Status(204, None)

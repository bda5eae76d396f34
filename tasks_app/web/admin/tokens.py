"""API tokens, which can be revoked, and idempotency keys."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from tasks_app.models import ApiToken, IdempotencyKey
from tasks_app.permissions import Principal
from tasks_app.services.accounts.tokens import revoke_token
from tasks_app.web.admin.base import ReadOnly, acting_admin


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnly):
    list_display = ["name", "user", "scopes", "made_at", "expires_at", "revoked_at", "last_used_at"]
    list_filter = ["restricted", "user"]
    list_select_related = ["user"]
    search_fields = ["name", "user__username", "last_used_ip_address"]
    date_hierarchy = "made_at"
    actions = ["revoke"]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(acting_admin(request).is_superuser)

    @admin.action(description="Revoke the selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, chosen: QuerySet[ApiToken]) -> None:
        for token in chosen.select_related("user"):
            revoke_token(token, by=Principal.unrestricted(acting_admin(request)))
        self.message_user(request, "The selected tokens are revoked.")


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnly):
    list_display = ["key", "user", "status", "at"]
    list_select_related = ["user"]
    search_fields = ["key", "user__username"]
    date_hierarchy = "at"

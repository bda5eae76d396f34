"""API tokens and the keys of repeated requests: to be looked at, and tokens to be revoked."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from tasks_app.models import ApiToken, IdempotencyKey
from tasks_app.permissions import Principal
from tasks_app.services.tokens import revoke_token
from tasks_app.web.admin.base import History, admin_of


@admin.register(ApiToken)
class ApiTokenAdmin(History):
    list_display = ["name", "user", "scopes", "made_at", "expires_at", "revoked_at", "last_used_at"]
    list_filter = ["restricted", "user"]
    list_select_related = ["user"]
    search_fields = ["name", "user__username", "last_used_address"]
    date_hierarchy = "made_at"
    actions = ["revoke"]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(admin_of(request).is_superuser)

    @admin.action(description="Revoke the selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, chosen: QuerySet[ApiToken]) -> None:
        for token in chosen.select_related("user"):
            revoke_token(token, by=Principal.unrestricted(admin_of(request)))
        self.message_user(request, "The selected tokens are revoked.")


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(History):
    list_display = ["key", "user", "status", "at"]
    list_select_related = ["user"]
    search_fields = ["key", "user__username"]
    date_hierarchy = "at"

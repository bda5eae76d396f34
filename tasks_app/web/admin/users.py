"""Users, their roles, and how they log in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allauth.account.admin import EmailAddressAdmin as AllauthEmailAddressAdmin
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from tasks_app.history.audit import record
from tasks_app.models import Action, BrowserSession, Invitation, Membership, User
from tasks_app.services.projects.members import record_no_role, record_role
from tasks_app.web.admin.base import (
    AuditsDeletions,
    AuditsEdits,
    NoAddOrDelete,
    ProtectsHistory,
    ReadOnly,
    SiteAdminsOnly,
    acting_admin,
)

# Providers are configured by variables, and tokens of other services are not stored.
for _model in (SocialApp, SocialToken, SocialAccount, EmailAddress, Authenticator, Group):
    admin.site.unregister(_model)


@admin.register(User)
class UserAdmin(AuditsDeletions, ProtectsHistory, SiteAdminsOnly, DjangoUserAdmin):  # type: ignore[type-arg]
    list_display = ["username", "email", "first_name", "last_name", "is_active", "is_superuser", "last_login"]
    list_filter = ["is_active", "is_superuser", "is_staff", "memberships__project"]
    date_hierarchy = "date_joined"
    fieldsets = (*(DjangoUserAdmin.fieldsets or ()), ("Budget", {"fields": ["monthly_budget_usd"]}))

    def reasons_to_keep(self, pks: Iterable[Any]) -> list[str]:
        relations = ("answers", "tasks", "transition", "logentry", "audit")
        acted = Q(*((f"{relation}__isnull", False) for relation in relations), _connector=Q.OR)
        return [
            f"{user} cannot be deleted, because the history names them. "
            "Clear “Active” instead: that ends all their sessions."
            for user in User.objects.filter(acted, pk__in=list(pks)).distinct()
        ]

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record(Action.ACCOUNT_MADE, by=acting_admin(request), subject=obj.get_username())
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Distinguish a new password, which Django reports like any other change."""
        fields = [name for part in message for name in part.get("changed", {}).get("fields", [])]
        password = "Password" in fields or "password" in fields
        action = Action.PASSWORD_CHANGED if password else Action.ACCOUNT_CHANGED
        record(action, by=acting_admin(request), subject=obj.get_username(), changed=fields)
        return super().log_change(request, obj, message)

    def audit_deletion(self, obj: User, *, by: User) -> None:
        _record_account_change(obj, by=by, removed=str(obj._meta.verbose_name))


def _record_account_change(user: User, *, by: User, **detail: Any) -> None:
    record(Action.ACCOUNT_CHANGED, by=by, subject=user.get_username(), **detail)


@admin.register(Group)
class GroupAdmin(AuditsDeletions, AuditsEdits, SiteAdminsOnly, DjangoGroupAdmin):
    """What staff may look at in the admin pages; they must not give themselves more."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record(Action.ACCOUNT_CHANGED, by=acting_admin(request), subject=str(obj), made="group")
        return super().log_addition(request, obj, message)

    def audit_edit(self, obj: Group, changed: dict[str, Any], *, by: User) -> None:
        record(Action.ACCOUNT_CHANGED, by=by, subject=str(obj), changed=sorted(changed))

    def audit_deletion(self, obj: Group, *, by: User) -> None:
        record(Action.ACCOUNT_CHANGED, by=by, subject=str(obj), removed="group")


@admin.register(Membership)
class MembershipAdmin(AuditsDeletions, SiteAdminsOnly):
    list_display = ["user", "project", "role"]
    list_filter = ["role", "project"]
    list_select_related = ["user", "project"]
    search_fields = ["user__username", "user__first_name", "user__last_name", "project__name"]
    autocomplete_fields = ["user", "project"]

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        before = Membership.objects.get(pk=obj.pk).role if change else ""
        super().save_model(request, obj, form, change)
        record_role(obj, by=acting_admin(request), before=before)

    def audit_deletion(self, obj: Membership, *, by: User) -> None:
        record_no_role(obj, by=by)


@admin.register(Invitation)
class InvitationAdmin(ReadOnly):
    list_display = ["email", "project", "role", "invited_by", "created_at", "expires_at", "accepted_at"]
    list_filter = ["role", "project"]
    list_select_related = ["project", "invited_by"]
    search_fields = ["email", "project__name", "invited_by__username"]
    date_hierarchy = "created_at"
    exclude = ["token_hash"]


class _DeletableOnly(AuditsDeletions, NoAddOrDelete):
    """Rows that the portal creates; a site admin may delete them."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(acting_admin(request).is_superuser)

    def audit_deletion(self, obj: Any, *, by: User) -> None:
        name = obj.user.get_username() if obj.user else "a stranger"
        record(Action.ACCOUNT_CHANGED, by=by, subject=name, removed=str(self.opts.verbose_name))


@admin.register(BrowserSession)
class BrowserSessionAdmin(_DeletableOnly):
    """Deleting a session ends it."""

    list_display = ["user", "browser", "address", "begun_at", "seen_at"]
    list_select_related = ["user"]
    list_filter = ["seen_at"]
    search_fields = ["user__username", "address", "browser"]
    exclude = ["session_key", "session_data"]


@admin.register(Authenticator)
class SecondFactorAdmin(_DeletableOnly):
    """Deleting both rows of a user switches the second factor off, for instance when a phone is lost."""

    list_display = ["user", "type", "created_at", "last_used_at"]
    list_select_related = ["user"]
    list_filter = ["type"]
    search_fields = ["user__username"]
    exclude = ["data"]

    def audit_deletion(self, obj: Any, *, by: User) -> None:
        if obj.type == Authenticator.Type.TOTP:
            record(Action.SECOND_FACTOR_OFF, by=by, subject=obj.user.get_username())


@admin.register(SocialAccount)
class LinkedLoginAdmin(_DeletableOnly):
    list_display = ["user", "provider", "uid", "date_joined"]
    list_select_related = ["user"]
    list_filter = ["provider"]
    search_fields = ["user__username", "uid"]


@admin.register(EmailAddress)
class EmailAddressAdmin(AuditsDeletions, SiteAdminsOnly, AllauthEmailAddressAdmin):  # type: ignore[misc]
    """A user whose provider verified the same address can log in as the owner of a verified one."""

    list_select_related = ["user"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self._record_verification(obj, by=acting_admin(request))

    def audit_deletion(self, obj: Any, *, by: User) -> None:
        _record_account_change(obj.user, by=by, email=obj.email, removed=str(obj._meta.verbose_name))

    @admin.action(description="Mark the selected addresses as verified", permissions=["change"])
    def make_verified(self, request: HttpRequest, queryset: QuerySet[EmailAddress]) -> None:
        """Needs the permission to change; allauth's own action only needs the one to view."""
        claimed = list(queryset.filter(verified=False).select_related("user"))
        super().make_verified(request, queryset)
        for address in claimed:
            address.refresh_from_db()
            self._record_verification(address, by=acting_admin(request))

    def _record_verification(self, obj: Any, *, by: User) -> None:
        _record_account_change(obj.user, by=by, email=obj.email, verified=obj.verified)

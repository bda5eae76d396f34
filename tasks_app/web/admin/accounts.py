"""Pages of users and their API tokens in the admin site."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from allauth.account.admin import EmailAddressAdmin as AllauthEmailAddressAdmin
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import CANCELLABLE
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    ApiToken,
    BrowserSession,
    IdempotencyKey,
    Invitation,
    Membership,
    Task,
    User,
    WorkingHours,
)
from tasks_app.permissions import Principal
from tasks_app.services.accounts import end_all_access, revoke_token
from tasks_app.services.projects.members import record_no_role, record_role
from tasks_app.services.tasks import cancel_task
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

    actions = ["end_access", "cancel_tasks"]

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        was_active = change and User.objects.filter(pk=obj.pk, is_active=True).exists()
        super().save_model(request, obj, form, change)
        if was_active and not obj.is_active:
            end_all_access(obj, by=acting_admin(request))
            self._offer_to_cancel(request, obj)

    def _offer_to_cancel(self, request: HttpRequest, user: User) -> None:
        if count := Task.objects.filter(created_by=user, phase__in=CANCELLABLE).count():
            self.message_user(
                request,
                f"{user.shown_name} cannot get in any more. {count} of their tasks work or wait. To stop "
                "them, select the user in the list and choose “Cancel the tasks of the selected users”.",
                messages.WARNING,
            )

    @admin.action(description="End all access of the selected users", permissions=["change"])
    def end_access(self, request: HttpRequest, chosen: QuerySet[User]) -> None:
        """For a lost laptop: sessions, tokens and pushed notifications end, and the account stays active."""
        for user in chosen:
            end_all_access(user, by=acting_admin(request))
        self.message_user(request, "All sessions and tokens of the selected users are ended.")

    @admin.action(description="Cancel the tasks of the selected users", permissions=["change"])
    def cancel_tasks(self, request: HttpRequest, chosen: QuerySet[User]) -> None:
        by, cancelled = Principal.unrestricted(acting_admin(request)), 0
        for task in Task.objects.filter(created_by__in=chosen, phase__in=CANCELLABLE):
            with suppress(IllegalMove):  # it has ended meanwhile
                cancel_task(task, by=by)
                cancelled += 1
        self.message_user(request, f"{cancelled} tasks are cancelled.")

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
    """The admin pages that staff may open; they must not give themselves more."""

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


@admin.register(WorkingHours)
class WorkingHoursAdmin(ReadOnly):
    list_display = ["user", "week"]
    list_select_related = ["user"]
    search_fields = ["user__username", "user__first_name", "user__last_name"]

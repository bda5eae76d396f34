"""People, their roles, and how they log in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allauth.account.admin import EmailAddressAdmin as AllauthEmailAddressAdmin
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from tasks_app.history.audit import record
from tasks_app.models import Action, BrowserSession, Invitation, Membership, User
from tasks_app.services.members import record_no_role, record_role
from tasks_app.web.admin.base import (
    BySiteAdmins,
    History,
    KeepsHistory,
    NotByHand,
    TellsEdits,
    TellsRemovals,
    admin_of,
)

# Who vouches is said by variables, and tokens of other services are not kept.
for _model in (SocialApp, SocialToken, SocialAccount, EmailAddress, Authenticator, Group):
    admin.site.unregister(_model)


@admin.register(User)
class PersonAdmin(TellsRemovals, KeepsHistory, BySiteAdmins, UserAdmin):  # type: ignore[type-arg]
    list_display = ["username", "email", "first_name", "last_name", "is_active", "is_superuser", "last_login"]
    list_filter = ["is_active", "is_superuser", "is_staff", "memberships__project"]
    date_hierarchy = "date_joined"

    def reasons_to_keep(self, pks: Iterable[Any]) -> list[str]:
        traces = ("answers", "tasks", "transition", "logentry", "audit")
        acted = Q(*((f"{trace}__isnull", False) for trace in traces), _connector=Q.OR)
        return [
            f"{person} cannot be deleted, because the history names them. "
            "Clear “Active” instead: that ends all their sessions."
            for person in User.objects.filter(acted, pk__in=list(pks)).distinct()
        ]

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record(Action.ACCOUNT_MADE, by=admin_of(request), subject=obj.get_username())
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Django tells in the same way of a new password and of other changes."""
        fields = [name for part in message for name in part.get("changed", {}).get("fields", [])]
        password = "Password" in fields or "password" in fields
        action = Action.PASSWORD_CHANGED if password else Action.ACCOUNT_CHANGED
        record(action, by=admin_of(request), subject=obj.get_username(), changed=fields)
        return super().log_change(request, obj, message)

    def tell_removed(self, obj: User, *, by: User) -> None:
        _tell(obj, by=by, removed=str(obj._meta.verbose_name))


def _tell(user: User, *, by: User, **detail: Any) -> None:
    record(Action.ACCOUNT_CHANGED, by=by, subject=user.get_username(), **detail)


@admin.register(Group)
class PermissionsAdmin(TellsRemovals, TellsEdits, BySiteAdmins, GroupAdmin):
    """What those may look at whom a site admin lets into the audit room. They could give themselves more."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record(Action.ACCOUNT_CHANGED, by=admin_of(request), subject=str(obj), made="group")
        return super().log_addition(request, obj, message)

    def tell_edited(self, obj: Group, changed: dict[str, Any], *, by: User) -> None:
        record(Action.ACCOUNT_CHANGED, by=by, subject=str(obj), changed=sorted(changed))

    def tell_removed(self, obj: Group, *, by: User) -> None:
        record(Action.ACCOUNT_CHANGED, by=by, subject=str(obj), removed="group")


@admin.register(Membership)
class MembershipAdmin(TellsRemovals, BySiteAdmins):
    list_display = ["user", "project", "role"]
    list_filter = ["role", "project"]
    list_select_related = ["user", "project"]
    search_fields = ["user__username", "user__first_name", "user__last_name", "project__name"]
    autocomplete_fields = ["user", "project"]

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        before = Membership.objects.get(pk=obj.pk).role if change else ""
        super().save_model(request, obj, form, change)
        record_role(obj, by=admin_of(request), before=before)

    def tell_removed(self, obj: Membership, *, by: User) -> None:
        record_no_role(obj, by=by)


@admin.register(Invitation)
class InvitationAdmin(History):
    list_display = ["email", "project", "role", "invited_by", "created_at", "expires_at", "accepted_at"]
    list_filter = ["role", "project"]
    list_select_related = ["project", "invited_by"]
    search_fields = ["email", "project__name", "invited_by__username"]
    date_hierarchy = "created_at"
    exclude = ["token_hash"]


class _Removable(TellsRemovals, NotByHand):
    """Rows that the portal makes; a site admin may take them away."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(admin_of(request).is_superuser)

    def tell_removed(self, obj: Any, *, by: User) -> None:
        name = obj.user.get_username() if obj.user else "a stranger"
        record(Action.ACCOUNT_CHANGED, by=by, subject=name, removed=str(self.opts.verbose_name))


@admin.register(BrowserSession)
class BrowserSessionAdmin(_Removable):
    """To delete one ends it."""

    list_display = ["user", "browser", "address", "begun_at", "seen_at"]
    list_select_related = ["user"]
    list_filter = ["seen_at"]
    search_fields = ["user__username", "address", "browser"]
    exclude = ["session_key", "session_data"]


@admin.register(Authenticator)
class SecondFactorAdmin(_Removable):
    """To delete both of a person switches the second factor off, for instance when the phone is lost."""

    list_display = ["user", "type", "created_at", "last_used_at"]
    list_select_related = ["user"]
    list_filter = ["type"]
    search_fields = ["user__username"]
    exclude = ["data"]

    def tell_removed(self, obj: Any, *, by: User) -> None:
        if obj.type == Authenticator.Type.TOTP:
            record(Action.SECOND_FACTOR_OFF, by=by, subject=obj.user.get_username())


@admin.register(SocialAccount)
class LinkedLoginAdmin(_Removable):
    list_display = ["user", "provider", "uid", "date_joined"]
    list_select_related = ["user"]
    list_filter = ["provider"]
    search_fields = ["user__username", "uid"]


@admin.register(EmailAddress)
class EmailAddressAdmin(TellsRemovals, BySiteAdmins, AllauthEmailAddressAdmin):  # type: ignore[misc]
    """“Verified” lets whoever proves this address to the provider of logins in as the person."""

    list_select_related = ["user"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self._tell_standing(obj, by=admin_of(request))

    def tell_removed(self, obj: Any, *, by: User) -> None:
        _tell(obj.user, by=by, email=obj.email, removed=str(obj._meta.verbose_name))

    @admin.action(description="Mark the selected addresses as verified", permissions=["change"])
    def make_verified(self, request: HttpRequest, queryset: QuerySet[EmailAddress]) -> None:
        """Allauth's own is open to whoever may look."""
        claimed = list(queryset.filter(verified=False).select_related("user"))
        super().make_verified(request, queryset)
        for address in claimed:
            address.refresh_from_db()
            self._tell_standing(address, by=admin_of(request))

    def _tell_standing(self, obj: Any, *, by: User) -> None:
        _tell(obj.user, by=by, email=obj.email, verified=obj.verified)

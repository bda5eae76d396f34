"""Base classes of the admin pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from tasks_app.models import User

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


def acting_admin(request: HttpRequest) -> User:
    """Return the user; nobody else can open the admin pages."""
    return cast(User, request.user)


class SiteAdminsOnly(ModelAdmin):
    """Rows that grant permissions: only site admins may change them, or others could become one."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(acting_admin(request).is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(acting_admin(request).is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(acting_admin(request).is_superuser)


class AuditsDeletions(ModelAdmin):
    """Records in the audit log which rows were deleted in the admin pages."""

    def audit_deletion(self, obj: Any, *, by: User) -> None:
        raise NotImplementedError

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Called before a single and before a bulk deletion."""
        for row in queryset:
            self.audit_deletion(row, by=acting_admin(request))
        return super().log_deletions(request, queryset)


class AuditsEdits(ModelAdmin):
    """Records in the audit log which fields were edited, with the old and the new value."""

    def audit_edit(self, obj: Any, changed: dict[str, Any], *, by: User) -> None:
        raise NotImplementedError

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if change and (changed := _changed_values(form)):
            self.audit_edit(form.instance, changed, by=acting_admin(request))


def _changed_values(form: Any) -> dict[str, list[Any]]:
    """By field, the old and the new value."""
    values = {name: [form.initial.get(name), form.cleaned_data.get(name)] for name in form.changed_data}
    return {name: [_json_value(value) for value in pair] for name, pair in values.items()}


def _json_value(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else str(value)


class NoAddOrDelete(ModelAdmin):
    """Rows that only the portal itself creates and deletes."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ReadOnly(NoAddOrDelete):
    """Rows that nobody may change."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ProtectsHistory(ModelAdmin):
    """Rows that cannot be deleted while history refers to them; the page says why."""

    def reasons_to_keep(self, pks: Iterable[Any]) -> list[str]:
        """Return a sentence for each row that must stay."""
        raise NotImplementedError

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Called by the single and by the bulk deletion; a reason under `protected` refuses both."""
        to_delete, counts, missing_permissions, protected = super().get_deleted_objects(objs, request)
        reasons = self.reasons_to_keep(obj.pk for obj in objs)
        # A missing permission would hide the reason, and nobody may delete history anyway.
        return to_delete, counts, set() if reasons else missing_permissions, reasons or protected

"""What the pages of the audit room have in common."""

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


def admin_of(request: HttpRequest) -> User:
    """Who is at work in the audit room; nobody else gets in."""
    return cast(User, request.user)


class BySiteAdmins(ModelAdmin):
    """Rows that decide who may do what: who could change them could become a site admin. Others may look."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(admin_of(request).is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(admin_of(request).is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(admin_of(request).is_superuser)


class NotByHand(ModelAdmin):
    """Rows that come and go with the portal's own work only."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class History(NotByHand):
    """Rows that stay as they were written."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class KeepsHistory(ModelAdmin):
    """Rows that cannot be deleted once history hangs on them; the page says why."""

    def reasons_to_keep(self, pks: Iterable[Any]) -> list[str]:
        """One sentence for each of the rows that must stay."""
        raise NotImplementedError

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Asked by the single and by the bulk deletion; a reason under `protected` refuses either."""
        to_delete, counts, lacking, protected = super().get_deleted_objects(objs, request)
        reasons = self.reasons_to_keep(obj.pk for obj in objs)
        # A lacking permission would hide the reason, and it would say less: nobody may delete history.
        return to_delete, counts, set() if reasons else lacking, reasons or protected

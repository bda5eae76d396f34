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


class TellsRemovals(ModelAdmin):
    """What is removed by hand is told to the audit, one row or many at once."""

    def tell_removed(self, obj: Any, *, by: User) -> None:
        raise NotImplementedError

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Asked before either deletion, with the row in a list or with the rows."""
        for row in queryset:
            self.tell_removed(row, by=admin_of(request))
        return super().log_deletions(request, queryset)


class TellsEdits(ModelAdmin):
    """What is edited by hand is told to the audit: each field, what it was, and what it is."""

    def tell_edited(self, obj: Any, changed: dict[str, Any], *, by: User) -> None:
        raise NotImplementedError

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if change and (changed := _edited(form)):
            self.tell_edited(form.instance, changed, by=admin_of(request))


def _edited(form: Any) -> dict[str, list[Any]]:
    values = {name: [form.initial.get(name), form.cleaned_data.get(name)] for name in form.changed_data}
    return {name: [_plain(value) for value in pair] for name, pair in values.items()}


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)


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

"""Preferences, webhooks and chats, and what was sent. URLs and secrets are not shown, not even encrypted."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tasks_app.history.audit import record
from tasks_app.models import Action, Delivery, Notice, Preferences, PushSubscription, Target, User
from tasks_app.web.admin.base import AuditsDeletions, AuditsEdits, NoAddOrDelete, ReadOnly


@admin.register(Preferences)
class PreferencesAdmin(ReadOnly):
    list_display = ["user", "project_selection", "digest", "quiet_from", "quiet_until"]
    list_filter = ["project_selection", "digest"]
    list_select_related = ["user"]
    search_fields = ["user__username", "user__first_name", "user__last_name"]


@admin.register(Target)
class TargetAdmin(AuditsEdits, AuditsDeletions, NoAddOrDelete):
    """Webhooks and chats; a site admin can switch them off."""

    list_display = ["name", "medium", "project", "user", "shown", "active", "created_at"]
    list_filter = ["medium", "active", "project"]
    list_select_related = ["project", "user"]
    search_fields = ["name", "project__name", "user__username", "shown"]
    date_hierarchy = "created_at"
    readonly_fields = ["project", "user", "medium", "name", "shown", "event_types", "created_at"]

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Allow deletion together with a project or user."""
        return bool(getattr(request.user, "is_superuser", False))

    def audit_edit(self, obj: Target, changed: dict[str, Any], *, by: User) -> None:
        _record_target_change(obj, by=by, **changed)

    def audit_deletion(self, obj: Target, *, by: User) -> None:
        _record_target_change(obj, by=by, removed="target")


def _record_target_change(target: Target, *, by: User, **detail: Any) -> None:
    owner = target.user.shown_name if target.user else ""
    record(
        Action.NOTIFICATIONS_CHANGED,
        by=by,
        project=target.project,
        subject=owner,
        target=target.name,
        **detail,
    )


@admin.register(PushSubscription)
class PushSubscriptionAdmin(ReadOnly):
    list_display = ["user", "browser", "host", "created_at"]
    list_select_related = ["user"]
    search_fields = ["user__username", "browser", "host"]
    date_hierarchy = "created_at"


@admin.register(Notice)
class NoticeAdmin(ReadOnly):
    list_display = ["user", "event_type", "task", "headline", "at", "read_at"]
    list_filter = ["event_type", "task__project"]
    list_select_related = ["user", "task"]
    search_fields = ["user__username", "task__title", "headline"]
    date_hierarchy = "at"


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly):
    list_display = [
        "created_at",
        "event_type",
        "medium",
        "user",
        "target",
        "state",
        "attempts",
        "status",
        "error",
    ]
    list_filter = ["state", "medium", "event_type"]
    list_select_related = ["user", "target"]
    search_fields = ["user__username", "target__name", "transition__task__title", "error"]
    date_hierarchy = "created_at"

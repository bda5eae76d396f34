"""Projects with their members, decisions and credentials. Secrets are not shown, not even encrypted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest

from tasks_app.core.amounts import counted
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Calendar,
    Decision,
    DecisionEvent,
    MemberGroup,
    Membership,
    Project,
    PublishCredential,
    User,
)
from tasks_app.services.projects.members import record_no_role, record_role
from tasks_app.web.admin.base import (
    AuditsDeletions,
    AuditsEdits,
    ProtectsHistory,
    ReadOnly,
    SiteAdminsOnly,
    acting_admin,
)

if TYPE_CHECKING:
    TabularInline = admin.TabularInline[Any, Any]
else:
    TabularInline = admin.TabularInline


class MembershipInline(TabularInline):
    model = Membership
    autocomplete_fields = ["user"]
    extra = 0


@admin.register(Project)
class ProjectAdmin(AuditsEdits, AuditsDeletions, ProtectsHistory, SiteAdminsOnly):
    list_display = ["name", "source", "branch", "is_sample", "created_at"]
    list_filter = ["is_sample"]
    search_fields = ["name", "source"]
    date_hierarchy = "created_at"
    readonly_fields = [
        "created_at", "overrides", "required_approvals", "forge", "forge_api_url", "pull_request_repository",
    ]  # fmt: skip
    inlines = [MembershipInline]

    def log_addition(self, request: HttpRequest, obj: Project, message: Any) -> Any:
        record(Action.PROJECT_ADDED, by=acting_admin(request), project=obj, source=obj.source)
        return super().log_addition(request, obj, message)

    def audit_edit(self, obj: Project, changed: dict[str, Any], *, by: User) -> None:
        record(Action.SETTINGS_CHANGED, by=by, project=obj, changed=changed)

    def audit_deletion(self, obj: Project, *, by: User) -> None:
        record(Action.PROJECT_REMOVED, by=by, project=obj, source=obj.source)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Record roles that are given or removed on this page."""
        before = dict(Membership.objects.filter(project=form.instance).values_list("pk", "role"))
        super().save_formset(request, form, formset, change)
        by = acting_admin(request)
        for membership in formset.deleted_objects:
            record_no_role(membership, by=by)
        for membership in [*(row for row, _ in formset.changed_objects), *formset.new_objects]:
            record_role(membership, by=by, before=before.get(membership.pk, ""))

    def reasons_to_keep(self, pks: Iterable[Any]) -> list[str]:
        rows = Project.objects.filter(pk__in=list(pks)).values_list("name").annotate(count=Count("tasks"))
        return [
            f"{name} has {counted(count, 'task')}, whose history of questions, answers "
            "and runs would be lost."
            for name, count in rows.filter(count__gt=0)
        ]


@admin.register(MemberGroup)
class MemberGroupAdmin(ReadOnly):
    list_display = ["name", "project"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["name", "project__name"]


@admin.register(Decision)
class DecisionAdmin(ReadOnly):
    list_display = ["__str__", "project", "state", "scope", "statement", "decided_by", "decided_at"]
    list_filter = ["state", "scope", "review_reason", "project"]
    list_select_related = ["project", "decided_by"]
    search_fields = ["statement", "reason", "decided_by__username", "project__name"]
    date_hierarchy = "made_at"


@admin.register(DecisionEvent)
class DecisionEventAdmin(ReadOnly):
    list_display = ["decision", "kind", "user", "task", "at", "note"]
    list_filter = ["kind", "decision__project"]
    list_select_related = ["decision", "user", "task"]
    search_fields = ["note", "decision__statement", "user__username"]
    date_hierarchy = "at"


@admin.register(PublishCredential)
class PublishCredentialAdmin(AuditsDeletions, ReadOnly):
    """Only a maintainer can store one; a site admin can remove it here too."""

    list_display = ["project", "kind", "shown", "url", "stored_by", "stored_at"]
    list_filter = ["kind", "project"]
    list_select_related = ["project", "stored_by"]
    search_fields = ["project__name", "url", "username", "shown"]
    date_hierarchy = "stored_at"

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return bool(getattr(request.user, "is_superuser", False))

    def audit_deletion(self, obj: PublishCredential, *, by: User) -> None:
        record(Action.CREDENTIAL_REMOVED, by=by, project=obj.project, kind=obj.kind, url=obj.url)


@admin.register(Calendar)
class CalendarAdmin(ReadOnly):
    list_display = ["__str__", "read_at", "fault_since"]
    list_select_related = ["project", "user"]
    search_fields = ["project__name", "user__username"]

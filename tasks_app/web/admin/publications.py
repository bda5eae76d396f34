"""Publications and the credentials for them. Secrets are not shown, not even encrypted."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from tasks_app.history.audit import record
from tasks_app.models import Action, Publication, PublishCredential, PullRequest, User
from tasks_app.web.admin.base import AuditsDeletions, ReadOnly


@admin.register(Publication)
class PublicationAdmin(ReadOnly):
    list_display = ["task", "state", "branch", "url", "by", "requested_at", "ended_at"]
    list_filter = ["state", "squash", "by_pipeline", "task__project"]
    list_select_related = ["task", "by"]
    search_fields = ["task__title", "url", "branch", "commit", "published_commit", "answer"]
    date_hierarchy = "requested_at"


@admin.register(PullRequest)
class PullRequestAdmin(ReadOnly):
    list_display = ["__str__", "task", "state", "title", "ended_by", "opened_at", "looked_at"]
    list_filter = ["state", "kind", "project"]
    list_select_related = ["task"]
    search_fields = ["task__title", "url", "title", "web_url", "fault"]
    date_hierarchy = "opened_at"


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

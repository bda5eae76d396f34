"""The audit log: who did what, when and from where. Filters, and exports as CSV or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.urls import path
from django.utils.safestring import mark_safe

from tasks_app.history.audit import record, truncated_query
from tasks_app.models import Action, AuditEntry
from tasks_app.models.audit import SEARCH_FIELDS
from tasks_app.services.exports import BATCH_SIZE, csv_lines, download
from tasks_app.services.search import iterate_ids
from tasks_app.web.admin.base import ReadOnly, acting_admin

if TYPE_CHECKING:
    from django.urls import URLPattern

    Entries = QuerySet[AuditEntry]

COLUMNS = [
    *("id", "at", "actor_name", "action", "subject", "project_name", "task_id"),
    *("via", "token", "ip_address", "detail"),
]  # fmt: skip


class TimeFilter(admin.DateFieldListFilter):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "time"


class UserFilter(admin.RelatedOnlyFieldListFilter):
    """Users who did something; agents, strangers and the portal itself count as none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "user"
        self.empty_value_display = mark_safe("none")


class ProjectFilter(admin.AllValuesFieldListFilter):
    """Label the choice for entries without a project, which could otherwise not be seen or clicked."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": choice["display"] or "none"}


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    """Read-only; the export streams all entries that the filters of the list select."""

    list_display = ["at", "actor_name", "action", "subject", "project_name", "via", "ip_address"]
    list_filter = [
        ("at", TimeFilter),
        ("actor", UserFilter),
        ("project_name", ProjectFilter),
        "via",
        "action",
    ]
    search_fields = SEARCH_FIELDS
    date_hierarchy = "at"
    change_list_template = "admin/audit_entries.html"

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(self.export)
        return [path("export.<str:form>", export, name="tasks_app_auditentry_export"), *super().get_urls()]

    def export(self, request: HttpRequest, form: str) -> StreamingHttpResponse:
        """Stream the filtered entries as `csv`, or as one JSON object per line (`jsonl`)."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if form not in EXPORT_FORMATS:
            raise Http404
        entries = self.get_changelist_instance(request).get_queryset(request)
        filters = truncated_query(request.GET)
        record(Action.EXPORTED, by=acting_admin(request), subject="audit entries", form=form, filters=filters)
        content_type, lines = EXPORT_FORMATS[form]
        return download(lines(entries), name=f"audit.{form}", kind=content_type)


def _newest_first(entries: Entries) -> Iterator[tuple[Any, ...]]:
    for ids in iterate_ids(entries, BATCH_SIZE):
        yield from AuditEntry.objects.filter(pk__in=ids).order_by("-pk").values_list(*COLUMNS)


def _as_csv(entries: Entries) -> Iterator[str]:
    return csv_lines(COLUMNS, _newest_first(entries))


def _as_json_lines(entries: Entries) -> Iterator[str]:
    for row in _newest_first(entries):
        yield json.dumps(dict(zip(COLUMNS, row, strict=True)), default=str, ensure_ascii=False) + "\n"


#: By file extension: the media type, and the function that writes the lines.
EXPORT_FORMATS = {"csv": ("text/csv", _as_csv), "jsonl": ("application/jsonl", _as_json_lines)}

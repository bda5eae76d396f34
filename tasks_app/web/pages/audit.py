"""The audit log: who did what, when and from where. Site admins see all, maintainers their projects."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from tasks_app.history.audit import record, truncated_query
from tasks_app.models import Action, AuditEntry
from tasks_app.permissions import projects_maintained_by
from tasks_app.reporting import downloads
from tasks_app.reporting.audit import AuditFilters, audit_rows
from tasks_app.reporting.schemas.audit import AuditEntryOut
from tasks_app.reporting.search.paging import PageCursor, page_of_ids, rows_in_order
from tasks_app.web.pages.access import is_htmx, principal_of

PER_PAGE = 50
#: Projects that are offered to choose from.
_MOST_PROJECTS = 200


@require_GET
def audit(request: HttpRequest) -> HttpResponse:
    """List the entries, the newest first. HTMX gets only the list."""
    principal, filters = principal_of(request), AuditFilters.of(request.GET)
    part = page_of_ids(filters.entries_visible_to(principal), PageCursor.of(request.GET), PER_PAGE)
    related = AuditEntry.objects.select_related("actor")
    context: dict[str, Any] = {
        "filters": filters,
        "entries": rows_in_order(related, part.ids),
        "slice": part,
        "filtered": urlencode(filters.url_parameters()),
    }
    if is_htmx(request):
        return render(request, "audit/_entries.html", context)
    names = projects_maintained_by(principal).order_by("name").values_list("name", flat=True)
    context |= {"actions": Action.choices, "projects": list(names[:_MOST_PROJECTS])}
    return render(request, "audit/page.html", context)


@require_GET
def audit_export(request: HttpRequest) -> StreamingHttpResponse:
    """Export all filtered entries as CSV, and record the export."""
    principal, filters = principal_of(request), AuditFilters.of(request.GET)
    searched = truncated_query(request.GET)
    record(Action.EXPORTED, by=principal.user, subject="audit entries", form="csv", filters=searched)
    rows, columns = audit_rows(filters.entries_visible_to(principal)), list(AuditEntryOut.model_fields)
    return downloads.export_rows(columns, rows, name="audit", file_format="csv")

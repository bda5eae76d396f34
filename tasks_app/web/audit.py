"""The audit log: its page, its export, and from where a request comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.http import require_GET

from tasks_app.core.errors import NotAllowed
from tasks_app.history.audit import ActionOrigin, acting_from, record, truncated_query
from tasks_app.models import Action, AuditEntry, Channel
from tasks_app.permissions import HiddenRow, projects_maintained_by
from tasks_app.schemas.audit import AuditEntryOut, audit_rows
from tasks_app.services import exports
from tasks_app.services.accounts import record_refusal
from tasks_app.services.audit import AuditFilters
from tasks_app.services.search import PageCursor, page_of_ids, rows_in_order
from tasks_app.web.access import is_htmx, principal_of


def audit_origin(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set the origin of audit entries."""

    def middleware(request: HttpRequest) -> Any:
        address = request.META.get("REMOTE_ADDR", "")[:60]
        with acting_from(ActionOrigin(via=Channel.WEB, ip_address=address)):
            return get_response(request)

    return middleware


class Refusals(MiddlewareMixin):
    """Records who asked for a row that they may not see (404), and answers 403 to what they may not do."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> None:
        if isinstance(exception, HiddenRow):
            record_refusal(exception)
        if isinstance(exception, NotAllowed):
            raise PermissionDenied(str(exception)) from exception


PER_PAGE = 50
#: Projects that are offered to choose from.
_MOST_PROJECTS = 200


@require_GET
def audit(request: HttpRequest) -> HttpResponse:
    """List the entries, the newest first. HTMX gets only the list."""
    principal, filters = principal_of(request), AuditFilters.from_query(request.GET)
    part = page_of_ids(filters.entries_visible_to(principal), PageCursor.from_query(request.GET), PER_PAGE)
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
    principal, filters = principal_of(request), AuditFilters.from_query(request.GET)
    searched = truncated_query(request.GET)
    record(Action.EXPORTED, by=principal.user, subject="audit entries", form="csv", filters=searched)
    rows, columns = audit_rows(filters.entries_visible_to(principal)), list(AuditEntryOut.model_fields)
    return exports.export_rows(columns, rows, name="audit", file_format="csv")

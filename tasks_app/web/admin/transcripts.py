"""The transcripts of the agents' sessions."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import SessionEntry
from tasks_app.web.admin.base import ReadOnly


@admin.register(SessionEntry)
class SessionEntryAdmin(ReadOnly):
    """No date hierarchy: it would sort millions of rows by a column without an index."""

    list_display = ["id", "session_id", "project_key", "subpath", "at"]
    list_filter = ["at"]
    search_fields = ["=session_id", "project_key", "entry"]
    ordering = ["-pk"]

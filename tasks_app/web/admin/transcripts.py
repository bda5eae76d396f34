"""The agent's own session transcripts."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import SessionEntry
from tasks_app.web.admin.base import History


@admin.register(SessionEntry)
class SessionEntryAdmin(History):
    """No hierarchy of dates: it would sort millions of rows by a column without an index."""

    list_display = ["id", "session_id", "project_key", "subpath", "at"]
    list_filter = ["at"]
    search_fields = ["=session_id", "project_key", "entry"]
    ordering = ["-pk"]

"""Workers, by their heartbeats, and the installation."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Installation, WorkerBeat
from tasks_app.web.admin.base import ReadOnly


@admin.register(WorkerBeat)
class WorkerBeatAdmin(ReadOnly):
    list_display = ["host", "pid", "version", "slots", "busy", "started_at", "seen_at", "ended", "problem"]
    list_filter = ["ended", "host"]
    search_fields = ["host"]
    date_hierarchy = "seen_at"


@admin.register(Installation)
class InstallationAdmin(ReadOnly):
    list_display = ["identity", "created_at"]
    search_fields = ["identity"]

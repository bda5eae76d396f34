"""The workers that said they live, and the installation that they belong to."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Installation, WorkerBeat
from tasks_app.web.admin.base import History


@admin.register(WorkerBeat)
class WorkerBeatAdmin(History):
    list_display = ["host", "pid", "version", "slots", "busy", "started_at", "seen_at", "ended"]
    list_filter = ["ended", "host"]
    search_fields = ["host"]
    date_hierarchy = "seen_at"


@admin.register(Installation)
class InstallationAdmin(History):
    list_display = ["identity", "created_at"]
    search_fields = ["identity"]

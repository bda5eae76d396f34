"""Workers, by their heartbeats, worker hosts with a token, and the installation."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Installation, WorkerBeat, WorkerToken
from tasks_app.web.admin.base import ReadOnly


@admin.register(WorkerBeat)
class WorkerBeatAdmin(ReadOnly):
    list_display = [
        "host",
        "pid",
        "version",
        "slots",
        "busy",
        "labels",
        "started_at",
        "seen_at",
        "ended",
        "problem",
        "unsandboxed",
    ]
    list_filter = ["ended", "host"]
    search_fields = ["host"]
    date_hierarchy = "seen_at"


@admin.register(WorkerToken)
class WorkerTokenAdmin(ReadOnly):
    list_display = ["name", "made_at"]
    search_fields = ["name"]


@admin.register(Installation)
class InstallationAdmin(ReadOnly):
    list_display = ["identity", "created_at"]
    search_fields = ["identity"]

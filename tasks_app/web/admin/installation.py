"""The installation: its workers, by their heartbeats, the tokens of worker hosts, and sums of days."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import (
    ChangedDay,
    DayFigures,
    Installation,
    ModelUsage,
    PersonUsage,
    SummedDay,
    WorkerBeat,
    WorkerToken,
)
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


@admin.register(SummedDay, ChangedDay)
class DayAdmin(ReadOnly):
    list_display = ["day"]
    search_fields = ["day"]


@admin.register(ModelUsage)
class ModelUsageAdmin(ReadOnly):
    list_display = ["day", "project", "model", "cost_usd"]
    list_select_related = ["project"]
    search_fields = ["project__name", "model"]


@admin.register(PersonUsage)
class PersonUsageAdmin(ReadOnly):
    list_display = ["day", "project", "user", "cost_usd"]
    list_select_related = ["project", "user"]
    search_fields = ["project__name", "user__username"]


@admin.register(DayFigures)
class DayFiguresAdmin(ReadOnly):
    list_display = ["day", "project", "runs_finished", "tasks_done", "asked", "answered"]
    list_select_related = ["project"]
    search_fields = ["project__name"]

"""Sums of days, which the portal writes (`services/usage/day_sums.py`)."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import ChangedDay, DayFigures, ModelUsage, PersonUsage, SummedDay
from tasks_app.web.admin.base import ReadOnly


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

"""Decisions of projects and what happened to them: history that people and agents wrote."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Decision, DecisionEvent
from tasks_app.web.admin.base import ReadOnly


@admin.register(Decision)
class DecisionAdmin(ReadOnly):
    list_display = ["__str__", "project", "state", "scope", "statement", "decided_by", "decided_at"]
    list_filter = ["state", "scope", "review_reason", "project"]
    list_select_related = ["project", "decided_by"]
    search_fields = ["statement", "reason", "decided_by__username", "project__name"]
    date_hierarchy = "made_at"


@admin.register(DecisionEvent)
class DecisionEventAdmin(ReadOnly):
    list_display = ["decision", "kind", "user", "task", "at", "note"]
    list_filter = ["kind", "decision__project"]
    list_select_related = ["decision", "user", "task"]
    search_fields = ["note", "decision__statement", "user__username"]
    date_hierarchy = "at"

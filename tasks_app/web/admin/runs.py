"""Runs and their events, the setups of workspaces, and spans."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Event, EventBlock, NotedHop, Run, Setup, Span
from tasks_app.web.admin.base import ReadOnly


@admin.register(Run)
class RunAdmin(ReadOnly):
    list_display = [
        "step",
        "task",
        "number",
        "reason",
        "outcome",
        "model",
        "sandboxed",
        "started_at",
        "cost_usd",
    ]
    list_filter = ["outcome", "reason", "sandboxed", "network", "model", "step__task__project"]
    list_select_related = ["step__task"]
    search_fields = ["step__name", "step__task__title", "=session_id", "error"]
    date_hierarchy = "started_at"
    ordering = ["-pk"]

    @admin.display(ordering="step__task")
    def task(self, run: Run) -> str:
        return str(run.step.task)


@admin.register(Event)
class EventAdmin(ReadOnly):
    """No date hierarchy: it would sort millions of rows by a column without an index."""

    list_display = ["run", "seq", "kind", "at"]
    list_filter = ["kind", "run__step__task__project"]
    list_select_related = ["run__step"]
    search_fields = ["run__step__task__title", "run__step__name", "payload"]
    ordering = ["-pk"]


@admin.register(EventBlock)
class EventBlockAdmin(ReadOnly):
    list_display = ["run", "first_seq", "last_seq", "first_id", "last_id"]
    list_filter = ["run__step__task__project"]
    list_select_related = ["run__step"]
    search_fields = ["run__step__task__title", "run__step__name"]
    fields = ["run", "first_seq", "last_seq", "first_id", "last_id", "kinds", "failures"]
    ordering = ["-pk"]


@admin.register(Setup)
class SetupAdmin(ReadOnly):
    list_display = ["task", "number", "outcome", "current", "sandboxed", "started_at", "ended_at"]
    list_filter = ["outcome", "sandboxed", "task__project"]
    list_select_related = ["task"]
    search_fields = ["task__title", "problem", "current"]
    date_hierarchy = "started_at"
    ordering = ["-pk"]


@admin.register(Span)
class SpanAdmin(ReadOnly):
    list_display = ["task", "kind", "span_id", "started_at", "ended_at", "outcome"]
    list_filter = ["kind", "task__project"]
    list_select_related = ["task"]
    search_fields = ["task__title", "=span_id", "task__traceparent"]


@admin.register(NotedHop)
class NotedHopAdmin(ReadOnly):
    list_display = ["span", "name", "question", "at"]
    list_filter = ["name", "span__task__project"]
    list_select_related = ["span"]
    search_fields = ["=span__span_id", "span__task__title"]

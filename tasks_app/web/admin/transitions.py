"""Transitions, change rows, and the log of the admin pages themselves."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.models import LogEntry

from tasks_app.models import Change, SequenceTransition, Transition
from tasks_app.web.admin.base import ReadOnly


@admin.register(Transition)
class TransitionAdmin(ReadOnly):
    list_display = ["task", "step", "source", "target", "actor", "reason", "at"]
    list_filter = ["target", "source", "task__project"]
    list_select_related = ["task", "step", "actor"]
    search_fields = ["task__title", "step__name", "reason", "actor__username"]
    date_hierarchy = "at"


@admin.register(SequenceTransition)
class SequenceTransitionAdmin(ReadOnly):
    list_display = ["sequence", "source", "target", "actor", "reason", "at"]
    list_filter = ["target", "source", "sequence__project"]
    list_select_related = ["sequence", "actor"]
    search_fields = ["sequence__folder", "reason", "actor__username"]
    date_hierarchy = "at"


@admin.register(Change)
class ChangeAdmin(ReadOnly):
    list_display = ["id", "task", "kind", "at"]
    list_filter = ["kind", "task__project"]
    list_select_related = ["task"]
    search_fields = ["task__title"]
    date_hierarchy = "at"
    ordering = ["-pk"]


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnly):
    list_display = ["action_time", "user", "content_type", "object_repr", "action_flag", "change_message"]
    list_filter = ["action_flag", "content_type"]
    list_select_related = ["user", "content_type"]
    search_fields = ["user__username", "object_repr", "change_message"]
    date_hierarchy = "action_time"

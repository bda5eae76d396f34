"""Pages of questions and decisions in the admin site."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Decision, DecisionEvent, IndexedAnswer, Question
from tasks_app.web.admin.base import ReadOnly


@admin.register(Question)
class QuestionAdmin(ReadOnly):
    list_display = [
        "headline",
        "task",
        "step",
        "state",
        "asked_at",
        "answered_by",
        "answered_at",
    ]
    list_filter = ["state", "kind", "way", "answered_via", "task__project"]
    list_select_related = ["task", "step", "answered_by"]
    search_fields = ["task__title", "step__name", "items", "answers", "notes", "answered_by__username"]
    date_hierarchy = "asked_at"


@admin.register(IndexedAnswer)
class IndexedAnswerAdmin(ReadOnly):
    list_display = ["question", "place", "project", "question_key"]
    list_filter = ["project"]
    list_select_related = ["question", "project"]
    search_fields = ["question_key", "question__task__title"]


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

"""Reviews with their threads and comments: history that people and agents wrote."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.models import Review, ReviewThread, ThreadComment, ViewedFile
from tasks_app.web.admin.base import ReadOnly


@admin.register(Review)
class ReviewAdmin(ReadOnly):
    list_display = ["__str__", "task", "author", "verdict", "commit", "sent_at", "delivered_at"]
    list_filter = ["verdict", "via", "task__project"]
    list_select_related = ["task", "author"]
    search_fields = ["body", "author__username", "task__title", "commit"]
    date_hierarchy = "created_at"
    ordering = ["-pk"]


@admin.register(ReviewThread)
class ReviewThreadAdmin(ReadOnly):
    list_display = ["__str__", "task", "place", "state", "created_at", "resolved_by", "resolved_at"]
    list_filter = ["state", "side", "task__project"]
    list_select_related = ["task", "resolved_by"]
    search_fields = ["path", "line_text", "task__title", "comments__text"]
    date_hierarchy = "created_at"
    ordering = ["-pk"]


@admin.register(ThreadComment)
class ThreadCommentAdmin(ReadOnly):
    list_display = ["__str__", "thread", "author", "run", "at"]
    list_filter = ["thread__task__project"]
    list_select_related = ["thread", "author", "run__step"]
    search_fields = ["text", "author__username", "thread__task__title"]
    date_hierarchy = "at"


@admin.register(ViewedFile)
class ViewedFileAdmin(ReadOnly):
    list_display = ["path", "task", "user", "at"]
    list_filter = ["task__project"]
    list_select_related = ["task", "user"]
    search_fields = ["path", "user__username", "task__title"]
    date_hierarchy = "at"
    ordering = ["-pk"]

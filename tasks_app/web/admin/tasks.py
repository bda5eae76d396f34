"""Tasks with their steps, runs, transitions, questions, reviews and publications."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest

from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    AnswerDraft,
    Asked,
    Change,
    ChangeKind,
    Event,
    EventBlock,
    IndexedAnswer,
    Publication,
    PullRequest,
    Question,
    Review,
    ReviewThread,
    Run,
    Rung,
    SentSpan,
    Sequence,
    SequenceTransition,
    SessionEntry,
    Setup,
    Step,
    Task,
    ThreadComment,
    Transition,
    User,
    ViewedFile,
)
from tasks_app.web.admin.base import AuditsEdits, NoAddOrDelete, ReadOnly

#: Fields that may be corrected here; services and the engine write the others.
EDITABLE = ["title", "threshold", "model"]
READ_ONLY = [field.name for field in Task._meta.concrete_fields if field.name not in {*EDITABLE, "id"}]


@admin.register(Task)
class TaskAdmin(AuditsEdits, NoAddOrDelete):
    list_display = ["title", "project", "phase", "pipeline", "threshold", "created_by", "created_at"]
    list_filter = ["phase", "project", "threshold", "pipeline"]
    list_select_related = ["project", "created_by"]
    search_fields = ["title", "slug", "body", "project__name", "created_by__username"]
    date_hierarchy = "created_at"
    fields = [*EDITABLE, *READ_ONLY]
    readonly_fields = READ_ONLY

    def save_model(self, request: HttpRequest, obj: Task, form: Any, change: bool) -> None:
        """Write only the edited fields: others may have changed since the row was read."""
        obj.save(update_fields=form.changed_data)
        Change.objects.create(task=obj, kind=ChangeKind.TASK)

    def audit_edit(self, obj: Task, changed: dict[str, Any], *, by: User) -> None:
        record(Action.TASK_CHANGED, by=by, task=obj, **changed)


@admin.register(Step)
class StepAdmin(ReadOnly):
    list_display = ["name", "task", "position", "phase", "started_at", "ended_at"]
    list_filter = ["phase", "name", "task__project"]
    list_select_related = ["task"]
    search_fields = ["name", "task__title", "task__slug"]
    date_hierarchy = "started_at"
    readonly_fields = ["phase"]
    ordering = ["-task_id", "position"]


@admin.register(Sequence)
class SequenceAdmin(ReadOnly):
    list_display = ["folder", "project", "phase", "branch", "created_by", "created_at"]
    list_filter = ["phase", "project"]
    list_select_related = ["project", "created_by"]
    search_fields = ["folder", "slug", "project__name"]
    date_hierarchy = "created_at"


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


@admin.register(SentSpan)
class SentSpanAdmin(ReadOnly):
    list_display = ["span_id", "taken_at"]
    search_fields = ["=span_id"]


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


@admin.register(SessionEntry)
class SessionEntryAdmin(ReadOnly):
    """No date hierarchy: it would sort millions of rows by a column without an index."""

    list_display = ["id", "session_id", "project_key", "subpath", "at"]
    list_filter = ["at"]
    search_fields = ["=session_id", "project_key", "entry"]
    ordering = ["-pk"]


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


@admin.register(Asked)
class AskedAdmin(ReadOnly):
    list_display = ["question", "user", "asked_by", "why", "at", "ended_at"]
    list_filter = ["asked_by", "question__task__project"]
    list_select_related = ["question", "user"]
    search_fields = ["user__username", "why", "question__task__title"]
    date_hierarchy = "at"


@admin.register(AnswerDraft)
class AnswerDraftAdmin(ReadOnly):
    list_display = ["question", "user", "replies", "declined", "problem"]
    list_filter = ["declined", "question__task__project"]
    list_select_related = ["question", "user"]
    search_fields = ["user__username", "question__task__title"]


@admin.register(IndexedAnswer)
class IndexedAnswerAdmin(ReadOnly):
    list_display = ["question", "place", "project", "question_key"]
    list_filter = ["project"]
    list_select_related = ["question", "project"]
    search_fields = ["question_key", "question__task__title"]


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


@admin.register(Publication)
class PublicationAdmin(ReadOnly):
    list_display = ["task", "state", "branch", "url", "by", "requested_at", "ended_at"]
    list_filter = ["state", "squash", "by_pipeline", "task__project"]
    list_select_related = ["task", "by"]
    search_fields = ["task__title", "url", "branch", "commit", "published_commit", "answer"]
    date_hierarchy = "requested_at"


@admin.register(PullRequest)
class PullRequestAdmin(ReadOnly):
    list_display = ["__str__", "task", "state", "title", "ended_by", "opened_at", "looked_at"]
    list_filter = ["state", "kind", "project"]
    list_select_related = ["task"]
    search_fields = ["task__title", "url", "title", "web_url", "fault"]
    date_hierarchy = "opened_at"


@admin.register(Rung)
class RungAdmin(ReadOnly):
    list_display = ["question", "position", "action", "due", "done_at", "outcome", "failure"]
    list_filter = ["action", "outcome", "question__task__project"]
    list_select_related = ["question"]
    search_fields = ["question__task__title", "failure"]
    date_hierarchy = "due"

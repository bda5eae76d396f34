"""Tasks and their steps. Only `tasks_app.history.transitions` changes their phases."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tasks_app.history.audit import record
from tasks_app.models import Action, Change, ChangeKind, Sequence, Step, Task, User
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
